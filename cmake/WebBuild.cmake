# The scheduling half as WebAssembly, and the playground as one HTML page (preset `web`; docs/playground.md). It needs
# Debian's Emscripten and the headers of fmt, nlohmann-json, toml++ and xxHash.

# Emscripten must not use /usr/include, which has another C library, so the four libraries are linked into a folder.
find_path(HOST_HEADERS NAMES fmt/format.h nlohmann/json.hpp toml++/toml.h xxhash.h PATHS /usr/include /usr/local/include
  NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH REQUIRED)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
foreach(library fmt nlohmann toml++ xxhash.h)
  file(CREATE_LINK ${HOST_HEADERS}/${library} ${CMAKE_BINARY_DIR}/include/${library} SYMBOLIC)
endforeach()
foreach(library fmt::fmt nlohmann_json::nlohmann_json tomlplusplus::tomlplusplus)
  add_library(${library} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${library} SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/include)
endforeach()
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)

set(CMAKE_POSITION_INDEPENDENT_CODE OFF) # WebAssembly has no shared libraries here

# Parts of C++20 that Emscripten's C++ library lacks.
target_include_directories(chimera_options SYSTEM BEFORE INTERFACE ${PROJECT_SOURCE_DIR}/cmake/web/include)
target_compile_options(chimera_options INTERFACE -fwasm-exceptions)
target_link_options(chimera_options INTERFACE -fwasm-exceptions)

add_subdirectory(src)
add_subdirectory(apps/web)

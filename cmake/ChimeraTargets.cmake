# chimera_library(NAME SOURCES ... [PUBLIC ...] [PRIVATE ...] [LIGHT] [TORCH]): one room of one floor.
# chimera_executable(NAME SOURCES ... [LIBRARIES ...] [TORCH])
# LIGHT: what it does itself takes no time, so the compiler spends less on it.
# TORCH: link LibTorch and reuse the one precompiled header of its headers: torch_pch.h. Rooms and programs without it
# that use fmt reuse another one, of the standard library's headers, fmt's, JSON's and CLI11's: room_pch.h.
# Files of a room are compiled together, a few at a time: what their headers cost is paid once. A name of an unnamed
# namespace is then one of its room. -DCHIMERA_UNITY=OFF compiles each by itself, in rooms without LibTorch with no
# precompiled header: what a file forgets to include is found there.

# `CCACHE` is "CCACHE-NOTFOUND" where there is no such program: ask whether it is there, never pass it on as it is.
set(CHIMERA_COMPILER_CACHE ccache CACHE STRING "Program that caches what the compiler makes, used where installed")
find_program(CCACHE ${CHIMERA_COMPILER_CACHE})
if(CCACHE)
  # A precompiled header is cached only with these two allowances. The compiler itself says which headers it read
  # (CCACHE_DEPEND): nothing is preprocessed only to find that out.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1
    ${CCACHE})
endif()

add_library(chimera_options INTERFACE)
target_include_directories(chimera_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(chimera_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> # GCC 12 warns of its own string concatenation (GCC bug 105651)
  $<$<BOOL:${CHIMERA_WERROR}>:-Werror>)
if(CCACHE)
  target_compile_options(chimera_options INTERFACE -fpch-preprocess)
endif()
if(CHIMERA_SANITIZE)
  target_compile_options(chimera_options INTERFACE -fsanitize=${CHIMERA_SANITIZE} -fno-omit-frame-pointer)
  target_compile_definitions(chimera_options INTERFACE CHIMERA_SANITIZED)
  target_link_options(chimera_options INTERFACE -fsanitize=${CHIMERA_SANITIZE})
  if(CHIMERA_SANITIZE MATCHES undefined)
    target_compile_options(chimera_options INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()

# The one precompiled header of all LibTorch targets; after find_package(LibTorch).
function(chimera_precompile_torch)
  add_library(chimera_torch_pch STATIC ${PROJECT_SOURCE_DIR}/cmake/torch_pch.cc)
  target_link_libraries(chimera_torch_pch PUBLIC chimera_options CLI11::CLI11 LibTorch::LibTorch)
  target_precompile_headers(chimera_torch_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/torch_pch.h)
endfunction()

# The header that was compiled for the target `carrier`.
function(chimera_reuse_header target carrier)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE) # as the header was compiled; an executable's own -fPIE would not fit it
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${carrier})
endfunction()

function(chimera_use_torch target)
  target_link_libraries(${target} PUBLIC LibTorch::LibTorch)
  if(TARGET chimera_torch_pch)
    chimera_reuse_header(${target} chimera_torch_pch)
  endif()
endfunction()

# The one precompiled header of all rooms without LibTorch; after find_package() of fmt, nlohmann_json and CLI11.
# Clang's alone: GCC 12 saves less by one, and then warns of its own string concatenation in another way.
function(chimera_precompile_rooms)
  if(CHIMERA_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    add_library(chimera_room_pch STATIC ${PROJECT_SOURCE_DIR}/cmake/room_pch.cc)
    target_link_libraries(chimera_room_pch PUBLIC chimera_options fmt::fmt nlohmann_json::nlohmann_json CLI11::CLI11)
    target_precompile_headers(chimera_room_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/room_pch.h)
  endif()
endfunction()

# Files of a room together, a few at a time, unless -DCHIMERA_UNITY=OFF.
function(chimera_compile_together target)
  if(CHIMERA_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 7)
    # Meant for headers: in a file that is compiled with its neighbours, an unnamed namespace is nobody else's either.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# A fifth less time to compile than with -O3. The WebAssembly keeps what makes it small.
function(chimera_optimize_lightly target)
  if(NOT EMSCRIPTEN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

function(chimera_library name)
  cmake_parse_arguments(ARG "LIGHT;TORCH" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(chimera_${name} STATIC ${ARG_SOURCES})
  chimera_compile_together(chimera_${name})
  target_link_libraries(chimera_${name} PUBLIC $<BUILD_INTERFACE:chimera_options> ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(ARG_LIGHT)
    chimera_optimize_lightly(chimera_${name})
  endif()
  if(ARG_TORCH)
    chimera_use_torch(chimera_${name})
  elseif(TARGET chimera_room_pch AND fmt::fmt IN_LIST ARG_PRIVATE) # the header was compiled with fmt's definitions
    chimera_reuse_header(chimera_${name} chimera_room_pch)
  endif()
endfunction()

function(chimera_executable name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE chimera_options ${ARG_LIBRARIES})
  if(ARG_TORCH)
    chimera_use_torch(${name})
  elseif(TARGET chimera_room_pch AND fmt::fmt IN_LIST ARG_LIBRARIES)
    chimera_reuse_header(${name} chimera_room_pch)
  endif()
endfunction()

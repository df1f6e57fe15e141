# chimera_library(NAME [SOURCES ...] [GENERATED ...] [PUBLIC ...] [PRIVATE ...] [LIGHT] [TORCH]): the library of the
#   room NAME, from SOURCES or from all sources below its folder.
# chimera_executable(NAME SOURCES ... [LIBRARIES ...] [TORCH])
# LIGHT compiles with less optimization, for code whose own run time does not matter.
# TORCH links LibTorch and reuses the precompiled header torch_pch.h. Other targets that use fmt reuse room_pch.h.
# Sources of a room are compiled together, seven at a time, so a name in an unnamed namespace is shared by the room.
# -DCHIMERA_UNITY=OFF compiles each source by itself, without precompiled headers in rooms without LibTorch; that finds
# missing includes.

# `CCACHE` is "CCACHE-NOTFOUND" where there is no such program: ask whether it is there, never pass it on as it is.
set(CHIMERA_COMPILER_CACHE ccache CACHE STRING "Program that caches what the compiler makes, used where installed")
find_program(CCACHE ${CHIMERA_COMPILER_CACHE})
if(CCACHE)
  file(RELATIVE_PATH up ${CMAKE_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/cached_compile ${PROJECT_SOURCE_DIR} ${up} ${CCACHE})
endif()

add_library(chimera_options INTERFACE)
target_include_directories(chimera_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(chimera_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> # GCC 12 warns of its own string concatenation (GCC bug 105651)
  $<$<BOOL:${CHIMERA_WERROR}>:-Werror>)
if(CCACHE)
  target_compile_options(chimera_options INTERFACE -fpch-preprocess
    "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
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
  target_precompile_headers(chimera_torch_pch PRIVATE <../cmake/torch_pch.h>)
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
    target_precompile_headers(chimera_room_pch PRIVATE <../cmake/room_pch.h>)
  endif()
endfunction()

# Compiles the sources of a target together, a few at a time, unless -DCHIMERA_UNITY=OFF. CMake's own UNITY_BUILD would
# name them by absolute paths, which no other clone finds in the compiler cache.
function(chimera_compile_together target)
  if(NOT CHIMERA_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  set(units "")
  set(text "")
  set(count 0)
  foreach(source ${sources})
    get_filename_component(source ${source} ABSOLUTE)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/src ${source})
    string(APPEND text "#include \"${path}\"\n")
    math(EXPR count "${count} + 1")
    math(EXPR position "${count} % 7")
    list(LENGTH sources number)
    if(position EQUAL 0 OR count EQUAL number)
      set(unit ${CMAKE_CURRENT_BINARY_DIR}/${target}_unit_${count}.cc)
      file(CONFIGURE OUTPUT ${unit} CONTENT "${text}" @ONLY)
      list(APPEND units ${unit})
      set(text "")
    endif()
  endforeach()
  set_property(TARGET ${target} PROPERTY SOURCES ${units})
  # Meant for headers: in a file that is compiled with its neighbours, an unnamed namespace is nobody else's either.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# A fifth less time to compile than with -O3. The WebAssembly keeps what makes it small.
function(chimera_optimize_lightly target)
  if(NOT EMSCRIPTEN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

function(chimera_library name)
  cmake_parse_arguments(ARG "LIGHT;TORCH" "" "SOURCES;GENERATED;PUBLIC;PRIVATE" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB_RECURSE ARG_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  endif()
  add_library(chimera_${name} STATIC ${ARG_SOURCES})
  chimera_compile_together(chimera_${name})
  target_sources(chimera_${name} PRIVATE ${ARG_GENERATED})
  target_link_libraries(chimera_${name} PUBLIC $<BUILD_INTERFACE:chimera_options> ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(ARG_LIGHT)
    chimera_optimize_lightly(chimera_${name})
  endif()
  if(ARG_TORCH)
    chimera_use_torch(chimera_${name})
    set_property(GLOBAL APPEND PROPERTY CHIMERA_TORCH_ROOMS ${name})
  else()
    set_property(GLOBAL APPEND PROPERTY CHIMERA_ROOMS ${name})
    if(TARGET chimera_room_pch AND fmt::fmt IN_LIST ARG_PRIVATE) # the header was compiled with fmt's definitions
      chimera_reuse_header(chimera_${name} chimera_room_pch)
    endif()
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

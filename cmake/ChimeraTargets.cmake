# chimera_library(NAME [SOURCES ...] [GENERATED ...] [PUBLIC ...] [PRIVATE ...] [LIGHT] [TORCH]) adds the library of the
#   room NAME, from SOURCES or from all sources below its folder.
# chimera_executable(NAME SOURCES ... [LIBRARIES ...] [TORCH])
# LIGHT compiles with less optimization, for code that is not critical for speed.
# TORCH links LibTorch and reuses the precompiled header torch_pch.h. Other targets that use fmt reuse room_pch.h;
# programs that parse flags reuse one that also has CLI11.
# Sources of a room are compiled together, ten at a time, and so are its tests, so they share the names in an unnamed
# namespace.
# -DCHIMERA_UNITY=OFF compiles each source by itself, without precompiled headers in rooms without LibTorch; that finds
# missing includes.

# `CCACHE` is "CCACHE-NOTFOUND" if the program is missing, so test it before use.
set(CHIMERA_COMPILER_CACHE ccache CACHE STRING "Compiler cache, used if installed")
find_program(CCACHE ${CHIMERA_COMPILER_CACHE})
if(CCACHE)
  file(RELATIVE_PATH up ${CMAKE_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/cached_compile ${PROJECT_SOURCE_DIR} ${up} ${CCACHE})
endif()

add_library(chimera_options INTERFACE)
target_include_directories(chimera_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(chimera_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual
  # GCC 12 has false positives in the standard library (GCC bug 105651). Other warnings, which clang does not have, are
  # of names in lambdas, of members that designated initializers leave out, and of GoogleTest's macros after `if`.
  "$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-stringop-overflow;-Wno-maybe-uninitialized>"
  "$<$<CXX_COMPILER_ID:GNU>:-Wno-shadow;-Wno-missing-field-initializers;-Wno-dangling-else>"
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

# Adds the precompiled header of all LibTorch targets; call it after find_package(LibTorch).
function(chimera_precompile_torch)
  add_library(chimera_torch_pch STATIC ${PROJECT_SOURCE_DIR}/cmake/torch_pch.cc)
  target_link_libraries(chimera_torch_pch
    PUBLIC chimera_options fmt::fmt nlohmann_json::nlohmann_json LibTorch::LibTorch)
  target_precompile_headers(chimera_torch_pch PRIVATE <../cmake/torch_pch.h>)
endfunction()

# Lets `target` reuse the header that was precompiled for the target `carrier`.
function(chimera_reuse_header target carrier)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE) # the flags of the header; -fPIE would make it unusable
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

# Adds the precompiled headers of rooms without LibTorch and of programs that parse flags; call it after find_package of
# fmt, nlohmann_json, CLI11. Only Clang uses them: GCC 12 gains less, and gives another false warning about std::string.
function(chimera_precompile_rooms)
  if(CHIMERA_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    add_library(chimera_room_pch STATIC ${PROJECT_SOURCE_DIR}/cmake/room_pch.cc)
    target_link_libraries(chimera_room_pch PUBLIC chimera_options fmt::fmt nlohmann_json::nlohmann_json)
    target_precompile_headers(chimera_room_pch PRIVATE <../cmake/room_pch.h>)
    add_library(chimera_flags_pch STATIC ${PROJECT_SOURCE_DIR}/cmake/room_pch.cc)
    target_link_libraries(chimera_flags_pch
      PUBLIC chimera_options fmt::fmt nlohmann_json::nlohmann_json CLI11::CLI11)
    target_precompile_headers(chimera_flags_pch PRIVATE <../cmake/room_pch.h> <CLI/CLI.hpp>)
  endif()
endfunction()

# Sets `result` to units that include the sources (absolute paths), `size` at a time. CMake's UNITY_BUILD would
# use absolute paths, so other clones could not use the compiler cache's entries.
function(chimera_make_units name sources size result)
  set(units "")
  set(text "")
  set(count 0)
  foreach(source ${sources})
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/src ${source})
    string(APPEND text "#include \"${path}\"\n")
    math(EXPR count "${count} + 1")
    math(EXPR position "${count} % ${size}")
    list(LENGTH sources number)
    if(position EQUAL 0 OR count EQUAL number)
      set(unit ${CMAKE_CURRENT_BINARY_DIR}/${name}_unit_${count}.cc)
      file(CONFIGURE OUTPUT ${unit} CONTENT "${text}" @ONLY)
      list(APPEND units ${unit})
      set(text "")
    endif()
  endforeach()
  set(${result} ${units} PARENT_SCOPE)
endfunction()

# Compiles the sources of a target together, SIZE at a time (10), unless -DCHIMERA_UNITY=OFF: those of each folder if
# FOLDERS is given, and sources with definitions of their own alone.
function(chimera_compile_together target)
  cmake_parse_arguments(ARG "FOLDERS" "SIZE" "" ${ARGN})
  if(NOT CHIMERA_UNITY)
    return()
  endif()
  if(NOT ARG_SIZE)
    set(ARG_SIZE 10)
  endif()
  get_target_property(sources ${target} SOURCES)
  set(units "")
  set(names "")
  foreach(source ${sources})
    get_filename_component(source ${source} ABSOLUTE)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    set(name ${target})
    if(ARG_FOLDERS)
      get_filename_component(folder ${source} DIRECTORY)
      get_filename_component(folder ${folder} NAME)
      string(APPEND name "_${folder}")
    endif()
    if(definitions)
      list(APPEND units ${source})
    else()
      list(APPEND names ${name})
      list(APPEND sources_of_${name} ${source})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES names)
  foreach(name ${names})
    chimera_make_units(${name} "${sources_of_${name}}" ${ARG_SIZE} of_name)
    list(APPEND units ${of_name})
  endforeach()
  set_property(TARGET ${target} PROPERTY SOURCES ${units})
  # The warning is meant for headers. An unnamed namespace in sources that are compiled together is no error.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# Compiles with -O1, which takes a fifth less time than -O3. The WebAssembly keeps its flags, which make it small.
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
  elseif(TARGET chimera_flags_pch AND CLI11::CLI11 IN_LIST ARG_LIBRARIES)
    chimera_reuse_header(${name} chimera_flags_pch)
  elseif(TARGET chimera_room_pch AND fmt::fmt IN_LIST ARG_LIBRARIES)
    chimera_reuse_header(${name} chimera_room_pch)
  endif()
endfunction()

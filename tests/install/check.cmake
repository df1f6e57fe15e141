# cmake -DBUILD=... -DSOURCE=... -DWITH_TORCH=... -P check.cmake
# Installs the build into a new prefix, builds the projects in this folder with it, and runs them.
set(work ${BUILD}/install_test)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): ${ARGV}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(try_project name program expected)
  run(${CMAKE_COMMAND} -S ${SOURCE}/tests/install/${name} -B ${work}/${name} -G Ninja -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DCMAKE_PREFIX_PATH=${work}/prefix -DEXAMPLE=${SOURCE}/examples/rings.cc)
  run(${CMAKE_COMMAND} --build ${work}/${name})
  run(${work}/${name}/${program})
  if(NOT output MATCHES "${expected}")
    message(FATAL_ERROR "${program} printed\n${output}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
run(${work}/prefix/bin/chimera --version)
run(${work}/prefix/bin/chimera plan --workers 8 --mini-batch 8 --machine h100-80gb) # an installed profile
if(WITH_TORCH)
  run(${work}/prefix/bin/chimera train --help) # loads the library of the training half
  file(COPY ${work}/prefix/bin/chimera DESTINATION ${work}/alone)
  run(${work}/alone/chimera schedules)
  execute_process(COMMAND ${work}/alone/chimera train RESULT_VARIABLE result ERROR_VARIABLE output)
  if(NOT result EQUAL 1 OR NOT output MATCHES "^chimera: `train` needs the library of the training half: [^\n]+\n$")
    message(FATAL_ERROR "without its library (${result}):\n${output}")
  endif()
endif()

# The package must not contain warning flags, sanitizers, the compiler cache or folders of the build.
file(GLOB package ${work}/prefix/lib*/cmake/Chimera/*.cmake ${work}/prefix/lib*/*/cmake/Chimera/*.cmake)
foreach(file ${package})
  file(STRINGS ${file} lines REGEX
    "INTERFACE_COMPILE_OPTIONS|CCACHE|ccache|-fsanitize|-fpch|chimera_options|${BUILD}/src")
  if(lines)
    message(FATAL_ERROR "${file} contains options of the build:\n${lines}")
  endif()
endforeach()
if(NOT package)
  message(FATAL_ERROR "no CMake package in ${work}/prefix")
endif()

try_project(scheduling picture "worker 0 [|] 0F0 ")
if(WITH_TORCH)
  try_project(training rings "worker 0 [|] 0F0 .*step 200  loss 0[.][01]")
endif()
file(REMOVE_RECURSE ${work})

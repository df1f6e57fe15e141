# cmake -DBUILD=... -DSOURCE=... -DWITH_TORCH=... [-DTORCH_DIR=...] [-DLAUNCHER=...] -P check.cmake
# Installs the build into a prefix of its own, builds the projects beside this file against it, and runs them.
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
    -DCMAKE_PREFIX_PATH=${work}/prefix -DEXAMPLE=${SOURCE}/examples/rings.cc
    -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
  run(${CMAKE_COMMAND} --build ${work}/${name})
  run(${work}/${name}/${program})
  if(NOT output MATCHES "${expected}")
    message(FATAL_ERROR "${program} printed\n${output}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
run(${work}/prefix/bin/chimera --version)
try_project(scheduling picture "worker 0 [|] 0F0 ")
if(WITH_TORCH)
  try_project(training rings "worker 0 [|] 0F0 .*step 200  loss 0[.][01]")
endif()
file(REMOVE_RECURSE ${work})

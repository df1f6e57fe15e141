# cmake -DBUILD=... -DSOURCE=... -P check_without_compiler_cache.cmake
# Configures the scheduling half as on a machine without a compiler cache, and checks that no generated command contains
# the result of the failed search.
set(work ${BUILD}/without_compiler_cache_test)
file(REMOVE_RECURSE ${work})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${work} -G Ninja -DCHIMERA_WITH_TORCH=OFF
  -DCHIMERA_COMPILER_CACHE=no-such-program -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "failed (${result})\n${output}")
endif()
file(GLOB_RECURSE generated ${work}/*.ninja ${work}/*.cmake ${work}/compile_commands.json)
list(FILTER generated EXCLUDE REGEX "/CMakeFiles/.*[.]cmake$") # results of CMake's own searches
foreach(file ${generated})
  file(STRINGS ${file} lines REGEX "CCACHE-NOTFOUND|no-such-program")
  if(lines)
    message(FATAL_ERROR "${file}:\n${lines}")
  endif()
endforeach()
if(NOT generated)
  message(FATAL_ERROR "nothing was generated in ${work}")
endif()
file(REMOVE_RECURSE ${work})

# Runs after linking for DiscoverSuites.cmake: writes the CTest tests of EXECUTABLE's suites to LIST.
execute_process(COMMAND ${EXECUTABLE} --gtest_list_tests "--gtest_filter=${FILTER}" OUTPUT_VARIABLE listed
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_/]+\\." suites "${listed}")
list(TRANSFORM suites REPLACE "[\n.]" "")
list(TRANSFORM suites REPLACE "^[A-Za-z0-9_]*/" "") # an instantiation is PREFIX/SUITE
list(REMOVE_DUPLICATES suites)
set(tests "")
foreach(suite ${suites})
  string(APPEND tests "add_test(${PREFIX}${suite} \"${EXECUTABLE}\" \"--gtest_filter=${suite}.*:*/${suite}.*\")\n"
    "set_tests_properties(${PREFIX}${suite} PROPERTIES COST 10 TIMEOUT ${TIMEOUT} ENVIRONMENT \"${ENVIRONMENT}\")\n")
endforeach()
file(WRITE ${LIST} "${tests}")

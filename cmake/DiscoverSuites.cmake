# chimera_discover_suites(EXECUTABLE TIMEOUT SECONDS [PREFIX TEXT] [FILTER PATTERN] [ENVIRONMENT NAME=VALUE...]) adds
# one CTest test for each suite of a GoogleTest executable, including instantiations. It is for executables that start
# more slowly than their tests run. The executable lists its suites after it is linked.
set(CHIMERA_LIST_SUITES ${CMAKE_CURRENT_LIST_DIR}/ListSuites.cmake)

function(chimera_discover_suites executable)
  cmake_parse_arguments(PARSE_ARGV 1 suites "" "TIMEOUT;PREFIX;FILTER" "ENVIRONMENT")
  string(MAKE_C_IDENTIFIER "${executable} ${suites_FILTER}" name)
  set(list ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake)
  add_custom_command(TARGET ${executable} POST_BUILD BYPRODUCTS ${list} VERBATIM
    COMMAND ${CMAKE_COMMAND} -D EXECUTABLE=$<TARGET_FILE:${executable}> -D LIST=${list} -D TIMEOUT=${suites_TIMEOUT}
      -D "PREFIX=${suites_PREFIX}" -D "FILTER=${suites_FILTER}" -D "ENVIRONMENT=${suites_ENVIRONMENT}"
      -P ${CHIMERA_LIST_SUITES})
  set_property(TARGET ${executable} APPEND PROPERTY LINK_DEPENDS ${CHIMERA_LIST_SUITES})
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake)
  file(WRITE ${include} "if(EXISTS \"${list}\")\n  include(\"${list}\")\nelse()\n"
    "  add_test(${executable}_NOT_BUILT ${executable}_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()

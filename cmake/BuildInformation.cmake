# cmake -DSOURCE=... -DOUTPUT=... -DVERSION=... -DCOMPILER=... -DSYSTEM=... -DBUILD_TYPE=... -DTORCH=... -P this
# Writes a source file with the text of `chimera --version`, if the text has changed.
set(commit "unknown: not built from a repository")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=12 HEAD
    OUTPUT_VARIABLE hash RESULT_VARIABLE result ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(result EQUAL 0)
    set(commit ${hash})
    execute_process(COMMAND ${GIT} -C ${SOURCE} status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND commit ", and changes since")
    endif()
  endif()
endif()
if(TORCH)
  set(training "LibTorch ${TORCH}")
else()
  set(training "none, built without LibTorch")
endif()
string(CONCAT text
  "#include \"build_information.h\"\n\n"
  "namespace chimera::apps {\n\n"
  "std::string version() { return \"${VERSION}\"; }\n"
  "std::string build_information() {\n"
  "  return \"chimera ${VERSION}\\n\"\n"
  "         \"commit: ${commit}\\n\"\n"
  "         \"built: ${BUILD_TYPE}, by ${COMPILER}, for ${SYSTEM}\\n\"\n"
  "         \"training half: ${training}\";\n"
  "}\n\n"
  "}  // namespace chimera::apps\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUTPUT} "${text}")
endif()

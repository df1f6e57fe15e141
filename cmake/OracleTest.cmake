# chimera_oracle_test(NAME SCRIPT [ARGUMENTS...]) adds a Python test that compares the program with transformers,
# tokenizers, safetensors, tensorboard or torch, which tools/oracles installs into .venv-oracles. If a package is
# missing, `oracles.require` (tests/support/oracles.py) prints its name and CTest reports the test as skipped.

if(CHIMERA_ORACLE_PYTHON AND NOT EXISTS ${CHIMERA_ORACLE_PYTHON})
  unset(CHIMERA_ORACLE_PYTHON CACHE) # .venv-oracles has been removed
endif()
find_program(CHIMERA_ORACLE_PYTHON NAMES python3 PATHS ${PROJECT_SOURCE_DIR}/.venv-oracles/bin NO_DEFAULT_PATH
  DOC "The interpreter of .venv-oracles")
find_program(CHIMERA_PYTHON NAMES python3 HINTS ${PROJECT_SOURCE_DIR}/.venv/bin)

function(chimera_oracle_test name script)
  set(python ${CHIMERA_ORACLE_PYTHON})
  if(NOT python)
    set(python ${CHIMERA_PYTHON})
  endif()
  if(NOT python)
    return()
  endif()
  add_test(NAME ${name} COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${ARGN})
  set(environment PYTHONDONTWRITEBYTECODE=1 "PYTHONPATH=${PROJECT_SOURCE_DIR}/tests/support" HF_HUB_OFFLINE=1
    TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1)
  set_tests_properties(${name} PROPERTIES COST 20 SKIP_RETURN_CODE 77 TIMEOUT 600 ENVIRONMENT "${environment}")
endfunction()

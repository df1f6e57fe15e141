# Finds LibTorch and defines LibTorch::LibTorch; needs find_package(fmt) first.
# Searches TORCH_DIR (a libtorch folder or site-packages/torch). Without TORCH_DIR, a build by pip searches its Python,
# and other builds the project's .venv. The installed CMake package also uses this file.
# It replaces torch's own CMake package, which requires a CUDA toolkit if torch is a CUDA wheel.

set(_torch_roots ${TORCH_DIR})
set(_torch_help "run ./dev build, which installs it, or set TORCH_DIR to an installed torch")
if(SKBUILD AND NOT TORCH_DIR)
  execute_process(COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE _torch_roots)
  set(_torch_help "this Python has no torch, so install it first, and give pip --no-build-isolation")
elseif(NOT TORCH_DIR)
  file(GLOB _torch_roots ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
endif()
find_path(LIBTORCH_ROOT NAMES include/ATen/ATen.h PATHS ${_torch_roots} NO_DEFAULT_PATH)
find_library(LIBTORCH_CPU torch_cpu PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
find_library(LIBTORCH_C10 c10 PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
find_path(FMT_HEADERS fmt/format.h)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LIBTORCH_ROOT LIBTORCH_CPU LIBTORCH_C10 FMT_HEADERS
  REASON_FAILURE_MESSAGE ${_torch_help})

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED GLOBAL)
  # Its include folder contains a newer fmt than the system's library, so the system's headers come first. (With
  # FMT_HEADER_ONLY, each file takes five seconds longer to compile.)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include_first)
  file(CREATE_LINK ${FMT_HEADERS}/fmt ${CMAKE_BINARY_DIR}/include_first/fmt SYMBOLIC)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/include_first
    ${LIBTORCH_ROOT}/include ${LIBTORCH_ROOT}/include/torch/csrc/api/include)
  # DT_RPATH instead of RUNPATH, so that it also finds the libraries that libtorch_cpu needs.
  target_link_libraries(LibTorch::LibTorch INTERFACE
    -Wl,--no-as-needed ${LIBTORCH_CPU} ${LIBTORCH_C10} -Wl,--as-needed fmt::fmt)
  target_link_options(LibTorch::LibTorch INTERFACE
    -Wl,--allow-shlib-undefined -Wl,--disable-new-dtags -Wl,-rpath,${LIBTORCH_ROOT}/lib)
endif()
mark_as_advanced(LIBTORCH_ROOT LIBTORCH_CPU LIBTORCH_C10 FMT_HEADERS)

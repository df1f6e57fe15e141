# Adds LibTorch::Cuda, the GPU libraries of PyPI's torch in .venv-oracles or TORCH_DIR. No CUDA toolkit is needed: only
# host code is compiled, with the headers of the wheels in nvidia/.

file(GLOB _packages ${PROJECT_SOURCE_DIR}/.venv-oracles/lib/python3*/site-packages)
if(TORCH_DIR)
  get_filename_component(_packages ${TORCH_DIR} DIRECTORY)
endif()
find_library(LIBTORCH_CUDA torch_cuda PATHS ${_packages}/torch/lib NO_DEFAULT_PATH)
find_library(LIBTORCH_C10_CUDA c10_cuda PATHS ${_packages}/torch/lib NO_DEFAULT_PATH)
find_path(CUDA_HEADERS cuda_runtime_api.h PATHS ${_packages}/nvidia/cu13/include NO_DEFAULT_PATH)
find_path(NCCL_HEADERS nccl.h PATHS ${_packages}/nvidia/nccl/include NO_DEFAULT_PATH)
find_file(CUDA_RUNTIME libcudart.so.13 PATHS ${_packages}/nvidia/cu13/lib NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorchCuda
  REQUIRED_VARS LIBTORCH_CUDA LIBTORCH_C10_CUDA CUDA_HEADERS NCCL_HEADERS CUDA_RUNTIME
  REASON_FAILURE_MESSAGE "run tools/cuda-build, which installs the full set of torch")

if(LibTorchCuda_FOUND AND NOT TARGET LibTorch::Cuda)
  get_filename_component(_cuda_libraries ${CUDA_RUNTIME} DIRECTORY)
  add_library(LibTorch::Cuda INTERFACE IMPORTED GLOBAL)
  target_include_directories(LibTorch::Cuda SYSTEM INTERFACE ${CUDA_HEADERS} ${NCCL_HEADERS})
  target_link_libraries(LibTorch::Cuda INTERFACE
    -Wl,--no-as-needed ${LIBTORCH_CUDA} ${LIBTORCH_C10_CUDA} -Wl,--as-needed ${CUDA_RUNTIME} LibTorch::LibTorch)
  # libtorch_cuda loads libraries from its own folder, so this folder comes before the folder of LibTorch::LibTorch.
  target_link_options(LibTorch::Cuda BEFORE INTERFACE -Wl,-rpath,${_packages}/torch/lib -Wl,-rpath,${_cuda_libraries})
endif()
mark_as_advanced(LIBTORCH_CUDA LIBTORCH_C10_CUDA CUDA_HEADERS NCCL_HEADERS CUDA_RUNTIME)

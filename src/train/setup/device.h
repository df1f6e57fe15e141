#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/choices.h"
#include "schedule/program.h"
#include "train/setup/job.h"
#include "transport/accelerator.h"

// What GPUs could do, as their makers say.

// The types of numbers in LibTorch, and which of them this machine computes with at a bearable speed.

// Where a job computes: --device.

namespace chimera {

/// Products of bfloat16 without sparsity, accumulated in float32, in FLOPs a second, by NVIDIA's data sheet of the GPU
/// that calls itself `name` ("NVIDIA H200"); 0 where we do not have that.
[[nodiscard]] double bfloat16_peak(std::string_view name);

/// LibTorch's name of the type.
[[nodiscard]] at::ScalarType scalar_type(DataType type);

/// Whether this CPU multiplies bfloat16 itself, by AVX512-BF16 or AMX. Others emulate it, 10 to 500 times slower than
/// float32.
[[nodiscard]] bool has_native_bfloat16();

/// Throws ConfigError for bfloat16 on a CPU that is not `native`.
void require_fast_numbers(DataType dtype, bool native);

/// The device of a rank's tensors: the CPU; or a GPU, the first for all threads, and for each process one of its own:
/// TrainOptions::gpu, or where our own launcher has started it, all ranks on this host, that of its rank.
[[nodiscard]] at::Device device_of(const TrainOptions& options, RankId rank);

/// Whether ranks compute on GPUs.
[[nodiscard]] bool uses_gpu(const TrainOptions& options);

/// Threads that an op of a rank uses: --threads, or the rank's share of the cores; with canonical reduction one.
[[nodiscard]] int intra_op_threads(const JobShape& job);

/// The pairs of ranks that exchange messages when the job trains, validates, is observed or repairs copies, ascending.
[[nodiscard]] std::vector<RankPair> talking_pairs(const Job& job);

/// The library for GPUs in the file `path`, opened with all it needs. Throws ConfigError, one line, where it is not
/// there or does not load.
[[nodiscard]] const Accelerator& open_accelerator(const std::string& path);

/// The library that lies beside this program, libchimera_cuda.so, opened once; or what AcceleratorInstead names.
[[nodiscard]] const Accelerator& accelerator();

/// While it lives, accelerator() is that one: tests have devices that are no GPUs.
class AcceleratorInstead {
 public:
  explicit AcceleratorInstead(const Accelerator& accelerator);
  AcceleratorInstead(const AcceleratorInstead&) = delete;
  AcceleratorInstead& operator=(const AcceleratorInstead&) = delete;
  ~AcceleratorInstead();
};

/// Throws ConfigError where the options ask for GPUs and this machine cannot give as many as `ranks` need: no library,
/// no GPU, or too few for one a process; or where its GPUs cannot compute with the options' numbers (require_numbers).
/// To be called before anything else here: where ranks are processes it first sets what CUDA reads when it starts
/// (cuda_variables()).
void require_device(const TrainOptions& options, std::int64_t ranks);

/// Throws ConfigError where the device that computes would have to emulate the options' numbers: of the CPU and of the
/// GPU that is the device, bfloat16, unless --force-bfloat16 is given; and of any but a GPU that has it, TensorFloat32.
void require_numbers(const TrainOptions& options, const GpuTraits& gpu);

/// Which GPU of the `visible` ones belongs to a process that is number `local_rank` of the `local_size` on its host:
/// that of this number; the only one where it sees but one, as batch systems show each task its own (that no other
/// process has it too shows when they meet). Throws ConfigError, one line, where there are fewer than processes.
[[nodiscard]] int gpu_of(int local_rank, int local_size, int visible);

/// Gives a process that another launcher has placed its GPU (TrainOptions::gpu), where its ranks are processes on GPUs.
/// Throws as gpu_of() and require_device() do.
void take_gpu(TrainOptions& options, int local_rank, int local_size);

/// Records on these GPUs, which are borrowed.
[[nodiscard]] RecordWork record_on(const Accelerator& gpus);

/// Throws ConfigError where --cuda-graphs does not go with the options: on the CPU; where ranks are threads that hand
/// each other tensors; with dropout, whose masks are numbers of the host in every step.
void require_recordable(const TrainOptions& options, std::int64_t ranks);

/// What a step reports as memory: of the CPU the largest resident set of this process so far, of a GPU the most bytes
/// of tensors that it has had there.
[[nodiscard]] std::function<double()> peak_memory_of(at::Device device);

/// Sets how this process multiplies on GPUs: float32 exactly, or with --tf32 rounded to TensorFloat32; and bfloat16
/// with float32 sums, also where cuBLAS adds up parts of a product (split-K), which torch by default lets it do in
/// bfloat16.
void use_numbers(const TrainOptions& options);

}  // namespace chimera

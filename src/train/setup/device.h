#pragma once

// The devices of a job: its GPUs or CPU cores, number types, threads, and the connections of its ranks, over Gloo or,
// on GPUs, by the accelerator library (libchimera_cuda.so). This library is opened at first use, so that the program
// runs without CUDA.

#include <chrono>

#include "core/choices.h"
#include "core/rendezvous_point.h"
#include "model/element_types.h"
#include "schedule/program.h"
#include "train/setup/job.h"
#include "transport/accelerator.h"
#include "transport/connection_breaker.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/pairs/communicators.h"

namespace chimera {

/// Returns the bfloat16 peak in FLOP/s, dense with float32 accumulation, from NVIDIA's data sheet of the GPU called
/// `name` ("NVIDIA H200"); 0 if not known, and for a MIG slice ("NVIDIA H200 MIG 1g.18gb").
[[nodiscard]] double bfloat16_peak(std::string_view name);

/// Returns whether this CPU has AVX512-BF16 or AMX. Other CPUs emulate bfloat16, 10 to 500 times slower than float32.
[[nodiscard]] bool has_native_bfloat16();

/// Throws ConfigError for bfloat16 if `native` (has_native_bfloat16()) is false.
void require_fast_numbers(DataType dtype, bool native);

/// Returns the device of a rank. `rank` is its number at the launch. On GPUs, threads share the first one; a process
/// uses DeviceOptions::gpu or, with our launcher, its rank's number.
[[nodiscard]] at::Device device_of(const TrainOptions& options, RankId rank);

[[nodiscard]] bool uses_gpu(const TrainOptions& options);

/// Returns how many receives from one rank the programs post before their turn: fewer on GPUs
/// (LoweringOptions::receives_ahead in passes/lower.h).
[[nodiscard]] std::int64_t receives_ahead(const TrainOptions& options);

/// Returns the numbers besides the model that determine FLOPs and bytes of a full micro-batch
/// (model_config/footprint.h).
[[nodiscard]] Workload workload_of(const TrainOptions& options);

/// Returns the bytes of a GPU with `memory_bytes` that hold no tensors of a rank, such as NCCL's buffers: by the
/// profile of --machine, or estimated. Zeros on CPUs. `ranks` is the number of ranks of the job.
[[nodiscard]] ReservedBytes reserved_of(const TrainOptions& options, std::int64_t ranks, double memory_bytes);

/// Throws ConfigError, in one line, if the tensors of a rank and reserved_of() together need more than its GPU has.
/// Ranks that share a GPU count together. Needs a device that require_device() has accepted. `tensors`: [worker], peak
/// bytes.
void require_gpu_memory(const TrainOptions& options, std::int64_t ranks, const std::vector<double>& tensors);

/// Returns the number of intra-op threads of a rank: --threads, or its share of the cores of a host with `local_ranks`
/// ranks, at least 1; one with --reduction canonical.
[[nodiscard]] int intra_op_threads(const TrainOptions& options, std::int64_t local_ranks);

/// Returns the pairs of ranks that exchange messages, ascending, by the job's programs and recovery options.
[[nodiscard]] std::vector<RankPair> communicating_pairs(const JobShape& job, const TrainOptions& options);

/// Returns whether a rank starts sums of gradients before its last op, so that they wait while ops run. `training` is
/// the program of a step.
[[nodiscard]] bool has_early_sums(const Program& training);

/// Returns the index, in JobShape::rank_groups(), of the first group of ranks that sum inside ops (tensor parallelism);
/// earlier groups sum gradients.
[[nodiscard]] std::size_t first_op_group(const JobShape& job);

/// A rank's end of the connections, for open_transport().
struct Endpoint {
  RankId rank;                 // Among all ranks of the job
  RendezvousPoint rendezvous;  // Where the ranks of the job meet
  Fingerprint compared;        // Must be equal on all ranks
  // Limits of a wait for other ranks, and of each step of the rendezvous
  std::chrono::milliseconds timeout = kGlooDefaultTimeout;
  std::chrono::milliseconds start_up_timeout = kGlooDefaultTimeout;
  std::shared_ptr<ConnectionBreaker> breaker;  // Lets another thread break the connections; may be null
};

/// Connects the rank. Collective over all ranks of the job. Throws TransportError if ranks cannot be reached in time,
/// PeerLostError if a rank is lost or another rank has other settings (`compared`) than most, and ConfigError if this
/// rank has them.
[[nodiscard]] std::unique_ptr<Transport> open_transport(const Job& job, Endpoint end);

/// Opens the GPU library `path`. Throws ConfigError if it is missing or does not load.
[[nodiscard]] const Accelerator& open_accelerator(const std::string& path);

/// Returns libchimera_cuda.so next to this program, opened once, or the library set by replace_accelerator().
[[nodiscard]] const Accelerator& accelerator();

/// Makes accelerator() return `other`; null: the library again. For tests with simulated devices.
void replace_accelerator(const Accelerator* other);

/// GPU resources that NCCL's communicators take on the rank that takes most.
struct GpuResources {
  GpuTraits gpu;
  CommunicatorCount communicators;
  BlockLimits blocks;
};

/// Returns the resources of a job with a GPU per rank and several ranks, else none. Needs the job's programs. Takes the
/// first GPU of this machine, or assumes an H100 if it has none. Throws ConfigError if a rank has too many
/// communicators (block_limits()).
[[nodiscard]] std::optional<GpuResources> gpu_resources(const JobShape& job, const TrainOptions& options);

/// Throws ConfigError if the options require GPUs and this machine has no library, no GPU or fewer GPUs than processes.
/// Also throws if the GPU lacks the number type (require_numbers()).
/// Call it before the other functions here, because it sets environment variables that CUDA reads at its start: those
/// of cuda_variables() if ranks are processes, of graph_variables() with --cuda-graphs, and CUBLAS_WORKSPACE_CONFIG
/// with --reduction canonical.
void require_device(const TrainOptions& options, std::int64_t ranks);

/// Throws ConfigError if the device lacks the number type: bfloat16 without hardware support, unless --force-bfloat16
/// is given, or TensorFloat32 on a GPU that does not have it.
void require_numbers(const TrainOptions& options, const GpuTraits& gpu);

/// Returns the GPU of process `local_rank` of `local_size` on its host: `local_rank`, or 0 if only one GPU is visible,
/// because batch systems show each task its own. The rendezvous rejects a GPU that two processes use. Throws
/// ConfigError if there are fewer GPUs than processes.
[[nodiscard]] int gpu_of(int local_rank, int local_size, int visible);

/// Assigns a GPU (DeviceOptions::gpu) to a process started by another launcher, if its ranks are processes on GPUs.
/// Throws as gpu_of() and require_device() do.
void assign_gpu(TrainOptions& options, int local_rank, int local_size);

/// Returns one line for an out-of-memory error of PyTorch's allocator on a GPU: its sizes, without other processes and
/// allocator settings, and what needs less memory.
[[nodiscard]] std::string summarize_out_of_memory(const std::string& error);

/// Returns a function that records graphs on `gpus`. It first releases the cache: a graph allocates in a pool of its
/// own, and the allocator may not free the blocks of earlier steps during a capture, so the memory of a step would be
/// needed twice.
[[nodiscard]] CaptureGraph graph_capture_on(const Accelerator& gpus);

/// Returns a function for peak memory in bytes: resident set of the process on the CPU, allocated tensors on a GPU.
[[nodiscard]] std::function<double()> peak_memory_of(at::Device device);

/// Returns a function for the bytes in use on the GPU, by all processes; an empty function on the CPU.
[[nodiscard]] std::function<double()> used_memory_of(at::Device device);

/// Returns a function for the number of allocations so far that had to free the allocator's cache first; an empty
/// function on the CPU.
[[nodiscard]] std::function<double()> allocation_retries_of(at::Device device);

/// Free bytes that a GPU must have after a warm-up, when the allocator already holds the peak of a step. They are for
/// fragments, and for buffers outside of the allocator.
inline constexpr std::int64_t kGpuMargin = std::int64_t{256} << 20;

/// Throws ConfigError if less than kGpuMargin is free on a GPU: in a step, an allocator that frees its cache waits for
/// the whole GPU, and so for receives, which may never end.
void require_gpu_margin(at::Device device);

/// Peak of a job's matrix products on its GPUs.
struct GpuPeak {
  double flops = 0;  ///< FLOP/s of all GPUs together, dense; 0 if not known
  std::string what;  ///< "NVIDIA H200 with float32"
};

/// Returns the peak of a job on GPUs; assumes that all are like the GPU of rank 0. It is known for bfloat16 and, as
/// half of it, for float32 with --tf32. Exact float32 products do not use tensor cores, so their peak is not known.
[[nodiscard]] GpuPeak gpu_peak(const TrainOptions& options, std::int64_t ranks);

/// Sets matrix products on GPUs to exact float32 or, with --tf32, TensorFloat32. Forces float32 sums for bfloat16; by
/// default torch lets cuBLAS sum split-K parts in bfloat16.
void set_matmul_precision(const TrainOptions& options);

}  // namespace chimera

#include "train/setup/device.h"

#include <dlfcn.h>

#include <ATen/Context.h>
#include <ATen/cpu/Utils.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "core/cgroup.h"
#include "core/printable.h"
#include "core/reject.h"
#include "core/resident_memory.h"
#include "engine/programs.h"
#include "launch/local/launcher.h"
#include "launch/local/rank.h"
#include "passes/lower.h"

namespace chimera {
namespace {

struct Peak {
  std::string_view begins;  // Words at the start of the name
  double teraflops;
};

// Longer names come first.
constexpr std::array kPeaks = {
    Peak{"NVIDIA B200", 2250},
    Peak{"NVIDIA GH200", 989.4},
    Peak{"NVIDIA H200 NVL", 835},
    Peak{"NVIDIA H200", 989.4},
    Peak{"NVIDIA H100 NVL", 835},
    Peak{"NVIDIA H100 PCIe", 756},
    Peak{"NVIDIA H100 80GB HBM3", 989.4},
    Peak{"NVIDIA A100", 312},
    Peak{"NVIDIA A800", 312},
    Peak{"NVIDIA A40", 149.7},
    Peak{"NVIDIA A30", 165},
    Peak{"NVIDIA A10G", 70},
    Peak{"NVIDIA A10", 125},
    Peak{"NVIDIA L40S", 362},
    Peak{"NVIDIA L40", 181},
    Peak{"NVIDIA L4", 121},
};

const Accelerator* replacement = nullptr;

bool has_processes(const TrainOptions& options) { return options.device.transport == TransportKind::Processes; }

/// Any replica of a stage may have to send its state to any other.
void add_twins(const RunShape& run, std::set<RankPair>& pairs) {
  // Connections are made once, before anyone knows which rank will be lost.
  for (const auto& group : run.rank_groups()) {
    for (const RankId giver : group) {
      for (const RankId taker : group)
        if (giver < taker) pairs.insert({static_cast<int>(giver.value()), static_cast<int>(taker.value())});
    }
  }
}

/// Returns a function for a number of this GPU; empty on the CPU.
std::function<double()> number_of_gpu(at::Device device, std::int64_t (Accelerator::*number)(int) const) {
  if (device.is_cpu()) return {};
  return [&gpus = accelerator(), gpu = static_cast<int>(device.index()), number] {
    return static_cast<double>((gpus.*number)(gpu));
  };
}

constexpr double kGraphBytes = 500e6;  // Estimate: nodes of a step's graphs

/// For dry runs, which need no GPU: they still show how many multiprocessors communicators would hold.
GpuTraits first_gpu_or_h100() {
  try {
    if (accelerator().problem().empty()) return accelerator().traits(0);
  } catch (const ConfigError&) {  // no library
  }
  return {.name = "assumed to be an H100 (no GPU can be used here)", .multiprocessors = 132};
}

}  // namespace

double bfloat16_peak(std::string_view name) {
  // A slice of a GPU has a share of its multiprocessors, which the name does not give reliably.
  if (name.find(" MIG ") != std::string_view::npos) return 0;
  // Whole words only, because "NVIDIA A100" begins with "NVIDIA A10".
  const auto begins_with = [name](std::string_view words) {
    return name.starts_with(words) &&
           (name.size() == words.size() || name[words.size()] == ' ' || name[words.size()] == '-');
  };
  for (const Peak& peak : kPeaks)
    if (begins_with(peak.begins)) return 1e12 * peak.teraflops;
  return 0;
}

bool has_native_bfloat16() {
  const auto capabilities = at::cpu::get_cpu_capabilities();
  const auto has = [&](const char* name) {
    const auto found = capabilities.find(name);
    return found != capabilities.end() && found->second.toBool();
  };
  return has("avx512_bf16") || has("amx_bf16");
}

void require_fast_numbers(DataType dtype, bool native) {
  if (dtype != DataType::BFloat16 || native) return;
  reject(
      "--dtype bfloat16: this CPU has neither AVX512-BF16 nor AMX and would be far slower than with float32; use "
      "--dtype float32, or --force-bfloat16 to use it anyway");
}

bool uses_gpu(const TrainOptions& options) { return options.device.kind == DeviceKind::Cuda; }

at::Device device_of(const TrainOptions& options, RankId rank) {
  if (!uses_gpu(options)) return at::kCPU;
  int own = options.device.gpu.value_or(static_cast<int>(rank.value()));
  if (ranks_share_gpus()) own %= accelerator().num_devices();
  return {accelerator().type(), static_cast<c10::DeviceIndex>(has_processes(options) ? own : 0)};
}

std::int64_t receives_ahead(const TrainOptions& options) {
  return uses_gpu(options) ? kReceivesAheadOnGpus : LoweringOptions().receives_ahead;
}

Workload workload_of(const TrainOptions& options) {
  Workload workload = workload_of(options.numbers.dtype, options.updates.optimizer.kind, options.data.sequence);
  if (workload.iteration_bytes > 0)
    // Set only for Muon, whose iterations may have a type of their own.
    workload.iteration_bytes = bytes_of(options.updates.optimizer.muon.iterations.value_or(options.numbers.dtype));
  workload.micro_batch_size = options.data.micro_batch_size;
  workload.dropout = options.model.dropout > 0;
  workload.split_documents = options.data.documents == Documents::Split;
  if (uses_gpu(options)) workload.logits_of_chunk = kLogitsOfGpuChunk;
  return workload;
}

ReservedBytes reserved_of(const TrainOptions& options, std::int64_t ranks, double memory_bytes) {
  if (!uses_gpu(options)) return {};
  const bool is_known = options.schedule.profile != nullptr && options.schedule.profile->reserved.all() > 0;
  ReservedBytes reserved = is_known ? options.schedule.profile->reserved : reserved_on_gpu(memory_bytes);
  if (options.numbers.cuda_graphs || options.numbers.op_graphs) reserved.graphs = kGraphBytes;
  // Threads of one process pass tensors on without NCCL.
  if (!has_processes(options) || ranks == 1) reserved.communicators = 0;
  return reserved;
}

void require_gpu_memory(const TrainOptions& options, std::int64_t ranks, const std::vector<double>& tensors) {
  const GpuTraits gpu = accelerator().traits(options.device.gpu.value_or(0));
  const auto memory = static_cast<double>(gpu.memory_bytes);
  const ReservedBytes reserved = reserved_of(options, ranks, memory);
  const std::int64_t devices = has_processes(options) ? accelerator().num_devices() : 1;
  const bool is_shared = !has_processes(options) || ranks_share_gpus();
  // The fullest GPU, if the ranks do not divide evenly: 5 ranks on 2 GPUs are 3 on one of them.
  const std::int64_t sharing = is_shared ? (ranks + devices - 1) / devices : 1;
  const double needed = std::ranges::max(tensors) * static_cast<double>(sharing);
  if (needed + reserved.all() <= memory) return;
  reject(
      "--device cuda: {} of tensors ({}), {} do not fit in the {} of {}; use more --stages, a smaller "
      "--micro-batch-size, --recompute full{}",
      bytes_text(needed), sharing == 1 ? "the fullest rank" : fmt::format("{} ranks on a GPU", sharing),
      to_text(reserved), bytes_text(memory), gpu.name,
      options.schedule.partition.rule == PartitionRule::Auto ? " or --partition even" : "");
}

int intra_op_threads(const TrainOptions& options, std::int64_t local_ranks) {
  if (options.device.threads > 0) return static_cast<int>(options.device.threads);
  // Products of several threads add in an order that depends on the number of threads.
  if (options.numbers.reduction == ReductionOrder::Canonical) return 1;
  return std::max(available_cores() / static_cast<int>(local_ranks), 1);
}

std::vector<RankPair> communicating_pairs(const JobShape& job, const TrainOptions& options) {
  std::set<RankPair> pairs;
  add_communicating_pairs(job.run.ranks, job.programs.training, pairs);
  add_communicating_pairs(job.run.ranks, job.programs.validation, pairs);
  for (const auto& [steps, run] : job.programs.runs) add_communicating_pairs(job.run.ranks, run.program, pairs);
  const bool copies_are_given =
      options.recovery.outlives_ranks() || options.recovery.different_copies == DifferentCopies::Repair;
  if (copies_are_given) add_twins(job.run, pairs);
  // Programs are those of one lane. The ranks of each t exchange the same messages among themselves.
  const auto of_lanes = job.ranks().pairs({pairs.begin(), pairs.end()});
  pairs = {of_lanes.begin(), of_lanes.end()};
  if (options.output.observes() && !uses_gpu(options))  // Clock measurement
    for (int rank = 1; rank < static_cast<int>(job.num_ranks()); ++rank) pairs.insert({0, rank});
  return {pairs.begin(), pairs.end()};
}

bool has_early_sums(const Program& training) {
  return std::ranges::any_of(training.workers, [](const std::vector<Instruction>& instructions) {
    const auto is_sum = [](const Instruction& each) { return each.kind == InstructionKind::StartAllReduce; };
    const auto is_op = [](const Instruction& each) { return each.kind == InstructionKind::Compute; };
    // A sum is early if an op follows it, so that both run at the same time.
    return std::any_of(std::ranges::find_if(instructions, is_sum), instructions.end(), is_op);
  });
}

std::size_t first_op_group(const JobShape& job) {
  return job.run.worker_groups().size() * static_cast<std::size_t>(job.tensor_parallel);
}

const Accelerator& open_accelerator(const std::string& path) {
  if (!std::filesystem::exists(path))
    reject("--device cuda: {} does not exist; build it with tools/cuda-build, or use --device cpu", path);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* entry = library == nullptr ? nullptr : ::dlsym(library, kAcceleratorEntry);
  if (entry == nullptr) {
    reject("--device cuda: cannot load {} ({}); build it again with tools/cuda-build, or use --device cpu", path,
           ::dlerror());
  }
  return *reinterpret_cast<AcceleratorEntry>(entry)();
}

const Accelerator& accelerator() {
  if (replacement != nullptr) return *replacement;
  // Loaded at the first use and never closed: a run on CPUs needs no CUDA libraries.
  static const Accelerator& library =
      open_accelerator(std::filesystem::path(own_executable()).parent_path() / "libchimera_cuda.so");
  return library;
}

void replace_accelerator(const Accelerator* other) { replacement = other; }

std::unique_ptr<Transport> open_transport(const Job& job, Endpoint end) {
  // Only ranks that exchange messages are connected: of 64 ranks in a pipeline, most pairs never do.
  const std::vector<RankPair> pairs = communicating_pairs(job, job.options);
  if (!uses_gpu(job.options)) {
    return connect_gloo({.rank = static_cast<int>(end.rank.value()),
                         .world_size = static_cast<int>(job.num_ranks()),
                         .rendezvous = std::move(end.rendezvous),
                         .timeout = end.timeout,
                         .start_up_timeout = end.start_up_timeout,
                         .groups = job.rank_groups(),
                         .pairs = pairs,
                         .fingerprint = std::move(end.compared),
                         .breaker = std::move(end.breaker)});
  }
  return accelerator().connect({.rank = static_cast<int>(end.rank.value()),
                                .world_size = static_cast<int>(job.num_ranks()),
                                .gpu = device_of(job.options, job.launched_rank(end.rank)).index(),
                                .rendezvous = std::move(end.rendezvous),
                                .groups = job.rank_groups(),
                                .pairs = pairs,
                                .sums_in_order = job.canonical.has_value(),
                                .has_early_sums = has_early_sums(job.programs.training),
                                .first_op_group = first_op_group(job),
                                .fingerprint = std::move(end.compared),
                                .start_up_timeout = end.start_up_timeout,
                                .timeout = end.timeout,
                                .on_group_connected = note_more_progress,
                                .breaker = std::move(end.breaker)});
}

void require_device(const TrainOptions& options, std::int64_t ranks) {
  if (!uses_gpu(options)) return;
  // CUDA reads its variables at its first use, so they are set before the library is opened.
  if (options.numbers.cuda_graphs) set_unless_set(graph_variables());
  if (has_processes(options)) set_unless_set(cuda_variables());
  if (options.numbers.reduction == ReductionOrder::Canonical) set_unless_set(deterministic_variables());
  const Accelerator& gpus = accelerator();
  if (const std::string problem = gpus.problem(); !problem.empty())
    reject("--device cuda: no usable GPU here ({}); use --device cpu", problem);
  if (has_processes(options) && !options.device.gpu && !ranks_share_gpus() && ranks > gpus.num_devices()) {
    reject(
        "--device cuda: {} processes need a GPU each, this machine has {}; use --transport threads, which "
        "share one GPU",
        ranks, gpus.num_devices());
  }
  require_numbers(options, gpus.traits(options.device.gpu.value_or(0)));
}

std::optional<GpuResources> gpu_resources(const JobShape& job, const TrainOptions& options) {
  if (!uses_gpu(options) || !has_processes(options) || job.num_ranks() == 1) return std::nullopt;
  const NcclOptions connections{.world_size = static_cast<int>(job.num_ranks()),
                                .groups = job.rank_groups(),
                                .pairs = communicating_pairs(job, options),
                                .has_early_sums = has_early_sums(job.programs.training),
                                .first_op_group = first_op_group(job)};
  GpuResources result{.gpu = first_gpu_or_h100(), .communicators = communicators_of_a_rank(connections), .blocks = {}};
  result.blocks = block_limits(connections, result.gpu.multiprocessors);
  return result;
}

void require_numbers(const TrainOptions& options, const GpuTraits& gpu) {
  if (!uses_gpu(options)) {
    if (!options.numbers.force_bfloat16) require_fast_numbers(options.numbers.dtype, has_native_bfloat16());
    return;
  }
  if (options.numbers.tf32 && !gpu.has_tf32) reject("--tf32: {} does not have TensorFloat32; leave it out", gpu.name);
  if (options.numbers.dtype != DataType::BFloat16 || options.numbers.force_bfloat16 || gpu.has_bfloat16) return;
  reject("--dtype bfloat16: {} emulates it; use --dtype float32, or --force-bfloat16 to use it anyway", gpu.name);
}

std::string summarize_out_of_memory(const std::string& error) {
  constexpr std::string_view kLastSize = " is free.";
  const std::size_t sizes = error.find(kLastSize);
  return error.substr(0, sizes == std::string::npos ? error.find('\n') : sizes + kLastSize.size()) +
         " A smaller --micro-batch-size, --recompute full, --offload full or more --stages need less";
}

CaptureGraph graph_capture_on(const Accelerator& gpus) {
  return [&gpus](const auto& work, const DeviceGraph* shared, const auto& generators) {
    // A graph has a pool of memory of its own, which cannot use what the allocator has cached.
    if (shared == nullptr) gpus.release_cache();
    return gpus.record(work, shared, generators);
  };
}

int gpu_of(int local_rank, int local_size, int visible) {
  // Some launchers show each process a GPU of its own, others show all GPUs to all.
  if (visible == 1) return 0;
  if (local_size <= visible) return local_rank;
  reject(
      "--device cuda: {} processes on this host need a GPU each, it has {}; start as many processes on a host as it "
      "has GPUs",
      local_size, visible);
}

void assign_gpu(TrainOptions& options, int local_rank, int local_size) {
  if (!uses_gpu(options) || !has_processes(options)) return;
  // require_device() asks for the traits of a GPU before this rank's own is known.
  options.device.gpu = 0;
  require_device(options, local_size);
  options.device.gpu = gpu_of(local_rank, local_size, accelerator().num_devices());
}

std::function<double()> peak_memory_of(at::Device device) {
  return device.is_cpu() ? peak_resident_bytes : number_of_gpu(device, &Accelerator::peak_bytes);
}

std::function<double()> used_memory_of(at::Device device) { return number_of_gpu(device, &Accelerator::used_bytes); }

std::function<double()> allocation_retries_of(at::Device device) {
  return number_of_gpu(device, &Accelerator::allocation_retries);
}

void require_gpu_margin(at::Device device) {
  const auto gpu = static_cast<int>(device.index());
  const std::int64_t all = accelerator().traits(gpu).memory_bytes;
  const std::int64_t used = accelerator().used_bytes(gpu);
  if (all - used >= kGpuMargin) return;
  reject(
      "--device cuda: a step without messages uses {} of the {} of GPU {}, and {} must stay free; use a smaller "
      "--micro-batch-size, --recompute full, or more stages",
      bytes_text(static_cast<double>(used)), bytes_text(static_cast<double>(all)), gpu,
      bytes_text(static_cast<double>(kGpuMargin)));
}

GpuPeak gpu_peak(const TrainOptions& options, std::int64_t ranks) {
  const std::string name = accelerator().traits(static_cast<int>(device_of(options, RankId(0)).index())).name;
  const bool is_tf32 = options.numbers.dtype == DataType::Float32 && options.numbers.tf32;
  double share = 0;  // Of the bfloat16 peak
  if (options.numbers.dtype == DataType::BFloat16) share = 1;
  // TensorFloat32 has half the rate of bfloat16 on all these GPUs. Plain float32 does not use tensor cores: no peak.
  if (is_tf32) share = 0.5;
  int gpus = has_processes(options) ? static_cast<int>(ranks) : 1;
  if (ranks_share_gpus()) gpus = std::min(gpus, accelerator().num_devices());
  return {.flops = share * gpus * bfloat16_peak(name),
          .what = fmt::format("{} with {}{}", name, to_text(options.numbers.dtype), is_tf32 ? " and --tf32" : "")};
}

void set_matmul_precision(const TrainOptions& options) {
  if (!uses_gpu(options)) return;
  at::globalContext().setFloat32MatmulPrecision(options.numbers.tf32 ? "high" : "highest");
  // cuBLAS may otherwise add the parts of a split product in bfloat16.
  at::globalContext().setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false);
}

}  // namespace chimera


#include "train/setup/device.h"
#include "train/setup/prepare_job.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "core/resident_memory.h"
#include "support/fake_accelerator.h"
#include "support/message_of.h"
#include "support/training.h"
#include "train/setup/dry_run.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TrainOptions on(DeviceKind device, TransportKind transport) {
  TrainOptions options;
  options.device.kind = device;
  options.device.transport = transport;
  return options;
}

template <class Action>
std::string refusal_of(Action&& action) {
  return testing::message_of([&] { action(); });
}

TEST(DeviceTest, ProcessesHaveAGpuEachAndThreadsShareTheFirst) {
  const testing::FakeAccelerator gpus;
  const testing::ScopedAcceleratorOverride instead(gpus);
  EXPECT_EQ(device_of(on(DeviceKind::Cpu, TransportKind::Processes), RankId(3)), at::Device(at::kCPU));
  EXPECT_EQ(device_of(on(DeviceKind::Cuda, TransportKind::Processes), RankId(3)), at::Device(at::kCUDA, 3));
  EXPECT_EQ(device_of(on(DeviceKind::Cuda, TransportKind::Threads), RankId(3)), at::Device(at::kCUDA, 0));
}

TEST(DeviceTest, NamesTheMissingLibrary) {
  EXPECT_THAT(
      testing::message_of([&] { static_cast<void>(open_accelerator("/nowhere/libchimera_cuda.so")); }, "accepted"),
      AllOf(HasSubstr("/nowhere/libchimera_cuda.so"), HasSubstr("tools/cuda-build")));
}

TEST(DeviceTest, SaysWhyALibraryDoesNotLoad) {
  const std::string path = testing::text_file();  // not a library
  EXPECT_THAT(testing::message_of([&] { static_cast<void>(open_accelerator(path)); }, "accepted"),
              AllOf(HasSubstr("cannot load " + path), HasSubstr("ELF"), HasSubstr("tools/cuda-build")));
}

TEST(DeviceTest, APlacedProcessHasTheGpuOfItsNumberOnTheHost) {
  const testing::FakeAccelerator gpus;  // four GPUs
  const testing::ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = on(DeviceKind::Cuda, TransportKind::Processes);
  assign_gpu(options, /*local_rank=*/1, /*local_size=*/4);
  EXPECT_EQ(device_of(options, RankId(5)), at::Device(at::kCUDA, 1));  // rank 5 of eight, the second on its host
  EXPECT_NO_THROW(require_device(options, 8));

  TrainOptions on_cpu = on(DeviceKind::Cpu, TransportKind::Processes);
  assign_gpu(on_cpu, 1, 400);
  EXPECT_EQ(on_cpu.device.gpu, std::nullopt);
}

TEST(DeviceTest, MoreProcessesThanGpusOnAHostAreRefusedInOneLine) {
  testing::FakeAccelerator gpus;
  const testing::ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = on(DeviceKind::Cuda, TransportKind::Processes);
  EXPECT_THAT(refusal_of([&] { assign_gpu(options, 4, 8); }),
              AllOf(HasSubstr("8 processes on this host"), HasSubstr("it has 4"), ::testing::Not(HasSubstr("\n"))));
  const TrainOptions launched = on(DeviceKind::Cuda, TransportKind::Processes);
  EXPECT_THAT(refusal_of([&] { require_device(launched, 5); }), HasSubstr("5 processes need a GPU each"));
  gpus.fault = "no driver";
  EXPECT_THAT(refusal_of([&] { assign_gpu(options, 0, 1); }), HasSubstr("no usable GPU here (no driver)"));
}

/// Records an environment variable when the GPUs are queried.
struct ObservingAccelerator final : testing::FakeAccelerator {
  const char* variable = "CUDA_DEVICE_MAX_CONNECTIONS";
  mutable std::string seen = {};
  [[nodiscard]] std::string problem() const override {
    const char* value = std::getenv(variable);
    seen = value == nullptr ? "" : value;
    return "";
  }
};

/// Number of receives that a worker posts before its first op.
std::int64_t posted_at_first(const Program& program, std::size_t worker) {
  const auto& instructions = program.workers[worker];
  const auto is_post = [](const Instruction& each) { return each.kind == InstructionKind::PostReceive; };
  return std::ranges::find_if_not(instructions, is_post) - instructions.begin();
}

TEST(DeviceTest, GpusPostOneReceiveAheadAndHoldFewMultiprocessors) {
  testing::FakeAccelerator gpus;
  const testing::ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {3, 4});
  EXPECT_FALSE(gpu_resources(prepare_job(options), options));
  EXPECT_EQ(posted_at_first(prepare_job(options).programs.training, 0), 2);

  options.device.kind = DeviceKind::Cuda;
  options.device.transport = TransportKind::Processes;
  options.data.validate_every = 1;
  const Job job = prepare_job(options);
  EXPECT_EQ(posted_at_first(job.programs.training, 0), 0) << "at most one op before its turn";
  EXPECT_EQ(posted_at_first(job.programs.validation, 1), 3)
      << "one, and the two that are made before this worker's first op";
  const auto resources = gpu_resources(job, job.options);
  ASSERT_TRUE(resources);
  EXPECT_EQ(resources->gpu.multiprocessors, 100);
  EXPECT_EQ(resources->communicators.all(), 4 + 0 + 1) << "both directions of two pairs, and all ranks";
  EXPECT_EQ(resources->blocks.held(resources->communicators), 4 * 2 + 1);

  TrainOptions split = options;
  split.schedule.shape.stages = 2;
  split.parallel.tensor_parallel = 2;
  EXPECT_EQ(gpu_resources(prepare_job(split), split)->communicators.all(), 2 + 1 + 1)
      << "and the ranks that share layers";

  gpus.each.multiprocessors = 8;
  EXPECT_THAT(refusal_of([&] { static_cast<void>(prepare_job(options)); }),
              AllOf(HasSubstr("--device cuda"), HasSubstr("5 communicators"), HasSubstr("8 multiprocessors")));
}

TEST(DeviceTest, WithoutAGpuItsResourcesAreThoseOfAnH100) {
  testing::FakeAccelerator gpus;
  gpus.fault = "no driver";
  const testing::ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {3, 4});
  options.device.kind = DeviceKind::Cuda;
  options.device.transport = TransportKind::Processes;
  Job job = partition_job(resolve_job(options));
  lower_programs(job);
  const auto resources = gpu_resources(job, job.options);
  ASSERT_TRUE(resources);
  EXPECT_THAT(resources->gpu.name, HasSubstr("assumed"));
  EXPECT_EQ(resources->gpu.multiprocessors, 132);
}

TEST(DeviceTest, RefusesAJobNearTheMemoryOfItsGpu) {
  testing::FakeAccelerator gpus;
  const testing::ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {2, 2});
  options.device.kind = DeviceKind::Cuda;
  options.device.transport = TransportKind::Processes;
  const auto refusal_in = [&](double bytes) {
    gpus.each.memory_bytes = static_cast<std::int64_t>(bytes);
    return refusal_of([&] { static_cast<void>(prepare_job(options)); });
  };
  EXPECT_EQ(refusal_in(4e9), "");
  const std::string refusal = refusal_in(2.041e9);  // the context and NCCL take 2 GB, the margin 40.8 MB
  EXPECT_THAT(refusal, AllOf(HasSubstr("--device cuda: "), HasSubstr(" of tensors (the fullest rank), 0.93 GiB for the "
                                                                     "CUDA context, 0.93 GiB for NCCL, 0.04 GiB in "
                                                                     "reserve do not fit in the 1.901 GiB of Fake GPU; "
                                                                     "use more --stages")));
  EXPECT_EQ(std::ranges::count(refusal, '\n'), 0);
  options.numbers.cuda_graphs = true;
  EXPECT_EQ(refusal_in(4e9), "");
  EXPECT_THAT(refusal_in(2.5e9), HasSubstr("0.47 GiB for CUDA graphs"));
  options.numbers.cuda_graphs = false;
  options.numbers.op_graphs = true;
  EXPECT_THAT(refusal_in(2.5e9), HasSubstr("0.47 GiB for CUDA graphs")) << "graphs of ops have a pool too";
  options.numbers.op_graphs = false;
  options.device.transport = TransportKind::Threads;
  EXPECT_THAT(refusal_in(1.02e9), AllOf(HasSubstr("(2 ranks on a GPU)"), ::testing::Not(HasSubstr("NCCL"))));
}

TEST(DeviceTest, AFullGpuIsReportedInOneLineWithWaysOut) {
  const std::string error =
      "CUDA out of memory. Tried to allocate 394.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 11.50 MiB is "
      "free. Process 1546 has 70.25 GiB memory in use. Of the allocated memory 2.95 GiB is allocated by PyTorch";
  EXPECT_EQ(summarize_out_of_memory(error),
            "CUDA out of memory. Tried to allocate 394.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 11.50 "
            "MiB is free. A smaller --micro-batch-size, --recompute full, --offload full or more --stages need less");
  EXPECT_THAT(summarize_out_of_memory("out of memory\nat alloc.cc"), ::testing::StartsWith("out of memory A smaller"));
}

TEST(DeviceTest, AFullGpuNamesTheLargestHoldersFirst) {
  const RankForecast rank{.rank = RankId(3),
                          .place = {},
                          .weights_bytes = 2 * kGiB,
                          .gradients_bytes = kGiB,
                          .optimizer_bytes = 4 * kGiB,
                          .peak_memory_bytes = 11 * kGiB};
  EXPECT_EQ(holders_text(rank, {.context = 0.5 * kGiB}),
            "by the plan, rank 3 holds optimizer 4 GiB, activations and messages 3.5 GiB, weights 2 GiB, gradients "
            "1 GiB, CUDA, NCCL and a margin 512 MiB");
}

TEST(DeviceTest, StreamsOfProcessesHaveQueuesOfTheirOwn) {
  const ObservingAccelerator gpus;
  const testing::ScopedAcceleratorOverride instead(gpus);
  ::unsetenv(gpus.variable);
  require_device(on(DeviceKind::Cuda, TransportKind::Threads), 1);
  EXPECT_EQ(gpus.seen, "") << "threads' kernels wait for nobody";
  require_device(on(DeviceKind::Cuda, TransportKind::Processes), 2);
  EXPECT_EQ(gpus.seen, "32");
  ::setenv(gpus.variable, "8", /*overwrite=*/1);
  require_device(on(DeviceKind::Cuda, TransportKind::Processes), 2);
  EXPECT_EQ(gpus.seen, "8");
  ::unsetenv(gpus.variable);
}

TEST(DeviceTest, GraphsAndCanonicalRunsSetTheirVariablesBeforeCudaStarts) {
  ObservingAccelerator gpus;
  const testing::ScopedAcceleratorOverride instead(gpus);
  TrainOptions graphs = on(DeviceKind::Cuda, TransportKind::Processes);
  graphs.numbers.cuda_graphs = true;
  TrainOptions canonical = on(DeviceKind::Cuda, TransportKind::Threads);
  canonical.numbers.reduction = ReductionOrder::Canonical;
  for (const auto& [variable, value, options] :
       {std::tuple("NCCL_GRAPH_MIXING_SUPPORT", "0", graphs), std::tuple("NCCL_GRAPH_REGISTER", "0", graphs),
        std::tuple("CUBLAS_WORKSPACE_CONFIG", ":4096:8", canonical),
        std::tuple("NCCL_ALGO", "^NVLS,NVLSTree", canonical)}) {
    gpus.variable = variable;
    ::unsetenv(variable);
    require_device(on(DeviceKind::Cuda, TransportKind::Processes), 2);
    EXPECT_EQ(gpus.seen, "") << variable;
    require_device(options, 2);
    EXPECT_EQ(gpus.seen, value) << variable;
    ::unsetenv(variable);
  }
}

TEST(DeviceTest, ProcessesChooseHowTorchAllocates) {
  ObservingAccelerator gpus;
  const testing::ScopedAcceleratorOverride instead(gpus);
  gpus.variable = "PYTORCH_CUDA_ALLOC_CONF";
  const auto setting = [&](bool records) {
    ::unsetenv(gpus.variable);
    TrainOptions options = on(DeviceKind::Cuda, TransportKind::Processes);
    options.numbers.cuda_graphs = records;
    require_device(options, 2);
    ::unsetenv(gpus.variable);
    return gpus.seen;
  };
  EXPECT_EQ(setting(false), "expandable_segments:True");
  EXPECT_EQ(setting(true), "graph_capture_record_stream_reuse:True");
  ::setenv("PYTORCH_ALLOC_CONF", "pinned_use_background_threads:True", /*overwrite=*/1);
  EXPECT_EQ(setting(false), "") << "the user's";
  ::unsetenv("PYTORCH_ALLOC_CONF");
}

TEST(DeviceTest, AGpuThatIsNearlyFullAfterTheWarmUpIsRefusedInOneLine) {
  testing::FakeAccelerator gpus;
  const testing::ScopedAcceleratorOverride instead(gpus);
  gpus.each.memory_bytes = std::int64_t{80} << 30;
  gpus.used = gpus.each.memory_bytes - kGpuMargin - 1;
  const at::Device second(at::kCUDA, 1);  // uses a byte more than the first
  EXPECT_NO_THROW(require_gpu_margin(second));
  ++gpus.used;
  EXPECT_THAT(testing::message_of([&] { require_gpu_margin(second); }, "accepted"),
              AllOf(HasSubstr("of GPU 1"), HasSubstr("--micro-batch-size")));
}

TEST(DeviceTest, ProcessUsesItsOnlyVisibleGpu) { EXPECT_EQ(gpu_of(3, 4, 1), 0); }

TEST(DeviceTest, DeviceDecidesAboutDataTypes) {
  testing::FakeAccelerator gpus;
  const testing::ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = on(DeviceKind::Cuda, TransportKind::Threads);
  options.numbers.dtype = DataType::BFloat16;
  options.numbers.tf32 = true;
  EXPECT_EQ(refusal_of([&] { require_device(options, 1); }), "");
  gpus.each = {.name = "Old GPU"};
  EXPECT_THAT(refusal_of([&] { require_device(options, 1); }),
              HasSubstr("--tf32: Old GPU does not have TensorFloat32"));
  options.numbers.tf32 = false;
  EXPECT_THAT(refusal_of([&] { require_device(options, 1); }), HasSubstr("Old GPU emulates it"));
  options.numbers.force_bfloat16 = true;
  EXPECT_EQ(refusal_of([&] { require_device(options, 1); }), "");
}

TEST(DeviceTest, TheCpuDoesNotDecideForTheGpu) {
  const testing::FakeAccelerator gpus;
  const testing::ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {2, 2});
  options.numbers.dtype = DataType::BFloat16;
  options.device.transport = TransportKind::Threads;
  const bool native = has_native_bfloat16();
  EXPECT_EQ(refusal_of([&] { static_cast<void>(resolve_job(options)); }) == "", native);
  options.device.kind = DeviceKind::Cuda;
  EXPECT_EQ(refusal_of([&] { static_cast<void>(resolve_job(options)); }), "");
}

TEST(DeviceTest, OnlyGpusHaveTensorFloat32) {
  TrainOptions options = on(DeviceKind::Cpu, TransportKind::Threads);
  options.numbers.tf32 = true;
  EXPECT_THAT(refusal_of([&] { static_cast<void>(resolve_job(options)); }), HasSubstr("--tf32"));
}

TEST(DeviceTest, Float32ProductsAreExactByDefault) {
  TrainOptions options = on(DeviceKind::Cuda, TransportKind::Threads);
  options.numbers.tf32 = true;
  set_matmul_precision(options);
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::HIGH);
  options.numbers.tf32 = false;
  set_matmul_precision(options);
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
  EXPECT_EQ(at::globalContext().allowBF16ReductionCuBLAS(),
            at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK);
}

TEST(DeviceTest, MemoryIsThatOfTheDevice) {
  testing::FakeAccelerator gpus;
  gpus.peak = 1000;
  gpus.used = 5000;
  const testing::ScopedAcceleratorOverride instead(gpus);
  EXPECT_EQ(peak_memory_of(at::Device(at::kCUDA, 3))(), 1003);
  EXPECT_EQ(used_memory_of(at::Device(at::kCUDA, 3))(), 5003);
  const double before = peak_resident_bytes();
  EXPECT_GE(peak_memory_of(at::kCPU)(), before);
  EXPECT_FALSE(used_memory_of(at::kCPU)) << "of a GPU only";
}

TEST(DeviceTest, PeakBelongsToTheLongestMatchingName) {
  EXPECT_EQ(bfloat16_peak("NVIDIA H200"), 989.4e12);
  EXPECT_EQ(bfloat16_peak("NVIDIA H200 NVL"), 835e12);
  EXPECT_EQ(bfloat16_peak("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(bfloat16_peak("NVIDIA L40S"), 362e12);
  EXPECT_EQ(bfloat16_peak("NVIDIA L4"), 121e12);
  EXPECT_EQ(bfloat16_peak("NVIDIA H100 80GB HBM3"), 989.4e12);
  EXPECT_EQ(bfloat16_peak("NVIDIA GH200 480GB"), 989.4e12);
}

TEST(DeviceTest, PartsOfGpusAndUnknownNamesHaveNoPeak) {
  for (const char* name : {"Fake GPU", "", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
                           "NVIDIA L40G", "NVIDIA A100X", "NVIDIA A1000 Laptop GPU", "NVIDIA H20", "NVIDIA L4000"}) {
    EXPECT_EQ(bfloat16_peak(name), 0) << name;
  }
}

TEST(DeviceTest, PeakOfAJobCountsItsGpusAndItsType) {
  testing::FakeAccelerator gpus;
  gpus.each.name = "NVIDIA A100-SXM4-80GB";
  const testing::ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {4, 4});
  options.device.kind = DeviceKind::Cuda;
  options.numbers.dtype = DataType::BFloat16;
  EXPECT_EQ(gpu_peak(options, resolve_job(options).num_ranks()).flops, 4 * 312e12);
  options.device.transport = TransportKind::Threads;
  EXPECT_EQ(gpu_peak(options, resolve_job(options).num_ranks()).flops, 312e12) << "ranks share a GPU";
  options.numbers.dtype = DataType::Float32;
  EXPECT_EQ(gpu_peak(options, resolve_job(options).num_ranks()).flops, 0);
  EXPECT_THAT(gpu_peak(options, resolve_job(options).num_ranks()).what,
              AllOf(HasSubstr("NVIDIA A100-SXM4-80GB"), HasSubstr("float32")));
  options.numbers.tf32 = true;
  EXPECT_EQ(gpu_peak(options, resolve_job(options).num_ranks()).flops, 156e12);
  gpus.each.name = "NVIDIA A100-SXM4-80GB MIG 1g.10gb";
  EXPECT_EQ(gpu_peak(options, resolve_job(options).num_ranks()).flops, 0);
}

}  // namespace
}  // namespace chimera


#include "train/setup/device.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/error.h"
#include "core/resident_memory.h"
#include "support/fake_accelerator.h"
#include "support/training.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TrainOptions on(DeviceKind device, TransportKind transport) {
  TrainOptions options;
  options.device = device;
  options.transport = transport;
  return options;
}

template <class Action>
std::string refusal_of(Action&& action) {
  try {
    action();
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(DeviceTest, ProcessesHaveAGpuEachAndThreadsShareTheFirst) {
  const testing::FakeAccelerator gpus;
  const ScopedAcceleratorOverride instead(gpus);
  EXPECT_EQ(device_of(on(DeviceKind::Cpu, TransportKind::Processes), RankId(3)), at::Device(at::kCPU));
  EXPECT_EQ(device_of(on(DeviceKind::Cuda, TransportKind::Processes), RankId(3)), at::Device(at::kCUDA, 3));
  EXPECT_EQ(device_of(on(DeviceKind::Cuda, TransportKind::Threads), RankId(3)), at::Device(at::kCUDA, 0));
}

TEST(DeviceTest, NamesTheMissingLibrary) {
  try {
    static_cast<void>(open_accelerator("/nowhere/libchimera_cuda.so"));
    FAIL() << "there is none";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/nowhere/libchimera_cuda.so"), HasSubstr("tools/cuda-build")));
  }
}

TEST(DeviceTest, SaysWhyALibraryDoesNotLoad) {
  const std::string path = testing::text_file();  // not a library
  try {
    static_cast<void>(open_accelerator(path));
    FAIL() << "it is a text";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cannot load " + path), HasSubstr("ELF"), HasSubstr("tools/cuda-build")));
  }
}

TEST(DeviceTest, APlacedProcessHasTheGpuOfItsNumberOnTheHost) {
  const testing::FakeAccelerator gpus;  // four GPUs
  const ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = on(DeviceKind::Cuda, TransportKind::Processes);
  take_gpu(options, /*local_rank=*/1, /*local_size=*/4);
  EXPECT_EQ(device_of(options, RankId(5)), at::Device(at::kCUDA, 1));  // rank 5 of eight, the second on its host
  EXPECT_NO_THROW(require_device(options, 8));

  TrainOptions on_cpu = on(DeviceKind::Cpu, TransportKind::Processes);
  take_gpu(on_cpu, 1, 400);
  EXPECT_EQ(on_cpu.gpu, std::nullopt);
}

TEST(DeviceTest, MoreProcessesThanGpusOnAHostAreRefusedInOneLine) {
  testing::FakeAccelerator gpus;
  const ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = on(DeviceKind::Cuda, TransportKind::Processes);
  EXPECT_THAT(refusal_of([&] { take_gpu(options, 4, 8); }),
              AllOf(HasSubstr("8 processes on this host"), HasSubstr("it has 4"), ::testing::Not(HasSubstr("\n"))));
  const TrainOptions launched = on(DeviceKind::Cuda, TransportKind::Processes);
  EXPECT_THAT(refusal_of([&] { require_device(launched, 5); }), HasSubstr("5 processes need a GPU each"));
  gpus.fault = "no driver";
  EXPECT_THAT(refusal_of([&] { take_gpu(options, 0, 1); }), HasSubstr("no usable GPU here (no driver)"));
}

/// Records an environment variable when the GPUs are queried.
struct ObservingAccelerator final : Accelerator {
  testing::FakeAccelerator gpus = {};
  const char* variable = "CUDA_MODULE_LOADING";
  mutable std::string seen = {};
  [[nodiscard]] int num_devices() const override { return gpus.num_devices(); }
  [[nodiscard]] GpuTraits traits(int gpu) const override { return gpus.traits(gpu); }
  [[nodiscard]] std::int64_t peak_bytes(int gpu) const override { return gpus.peak_bytes(gpu); }
  [[nodiscard]] std::string problem() const override {
    const char* value = std::getenv(variable);
    seen = value == nullptr ? "" : value;
    return "";
  }
  [[nodiscard]] std::unique_ptr<RecordedWork> record(const std::function<void()>& work) const override {
    return gpus.record(work);
  }
  [[nodiscard]] std::unique_ptr<Transport> connect(const NcclOptions& options) const override {
    return gpus.connect(options);
  }
};

TEST(DeviceTest, KernelsLoadEagerlyByDefault) {
  const ObservingAccelerator gpus;
  const ScopedAcceleratorOverride instead(gpus);
  ::unsetenv("CUDA_MODULE_LOADING");
  require_device(on(DeviceKind::Cuda, TransportKind::Threads), 1);
  EXPECT_EQ(gpus.seen, "") << "threads' kernels wait for nobody";
  require_device(on(DeviceKind::Cuda, TransportKind::Processes), 2);
  EXPECT_EQ(gpus.seen, "EAGER");
  ::setenv("CUDA_MODULE_LOADING", "LAZY", /*overwrite=*/1);
  require_device(on(DeviceKind::Cuda, TransportKind::Processes), 2);
  EXPECT_EQ(gpus.seen, "LAZY");
  ::unsetenv("CUDA_MODULE_LOADING");
}

TEST(DeviceTest, GraphsAndCanonicalRunsSetTheirVariablesBeforeCudaStarts) {
  ObservingAccelerator gpus;
  const ScopedAcceleratorOverride instead(gpus);
  TrainOptions graphs = on(DeviceKind::Cuda, TransportKind::Processes);
  graphs.cuda_graphs = true;
  TrainOptions canonical = on(DeviceKind::Cuda, TransportKind::Threads);
  canonical.reduction = ReductionOrder::Canonical;
  for (const auto& [variable, value, options] :
       {std::tuple("NCCL_GRAPH_MIXING_SUPPORT", "0", graphs), std::tuple("NCCL_GRAPH_REGISTER", "0", graphs),
        std::tuple("PYTORCH_CUDA_ALLOC_CONF", "graph_capture_record_stream_reuse:True", graphs),
        std::tuple("CUBLAS_WORKSPACE_CONFIG", ":4096:8", canonical)}) {
    gpus.variable = variable;
    ::unsetenv(variable);
    require_device(on(DeviceKind::Cuda, TransportKind::Processes), 2);
    EXPECT_EQ(gpus.seen, "") << variable;
    require_device(options, 2);
    EXPECT_EQ(gpus.seen, value) << variable;
    ::unsetenv(variable);
  }
}

TEST(DeviceTest, ProcessUsesItsOnlyVisibleGpu) { EXPECT_EQ(gpu_of(3, 4, 1), 0); }

TEST(DeviceTest, DeviceDecidesAboutDataTypes) {
  testing::FakeAccelerator gpus;
  const ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = on(DeviceKind::Cuda, TransportKind::Threads);
  options.dtype = DataType::BFloat16;
  options.tf32 = true;
  EXPECT_EQ(refusal_of([&] { require_device(options, 1); }), "");
  gpus.each = {.name = "Old GPU"};
  EXPECT_THAT(refusal_of([&] { require_device(options, 1); }),
              HasSubstr("--tf32: Old GPU does not have TensorFloat32"));
  options.tf32 = false;
  EXPECT_THAT(refusal_of([&] { require_device(options, 1); }), HasSubstr("Old GPU emulates it"));
  options.force_bfloat16 = true;
  EXPECT_EQ(refusal_of([&] { require_device(options, 1); }), "");
}

TEST(DeviceTest, TheCpuDoesNotDecideForTheGpu) {
  const testing::FakeAccelerator gpus;
  const ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {2, 2});
  options.dtype = DataType::BFloat16;
  options.transport = TransportKind::Threads;
  const bool native = has_native_bfloat16();
  EXPECT_EQ(refusal_of([&] { static_cast<void>(job_shape(options)); }) == "", native);
  options.device = DeviceKind::Cuda;
  EXPECT_EQ(refusal_of([&] { static_cast<void>(job_shape(options)); }), "");
}

TEST(DeviceTest, OnlyGpusHaveTensorFloat32) {
  TrainOptions options = on(DeviceKind::Cpu, TransportKind::Threads);
  options.tf32 = true;
  EXPECT_THAT(refusal_of([&] { require_numbers(options, {}); }), HasSubstr("--tf32"));
}

TEST(DeviceTest, Float32ProductsAreExactByDefault) {
  TrainOptions options = on(DeviceKind::Cuda, TransportKind::Threads);
  options.tf32 = true;
  use_numbers(options);
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::HIGH);
  options.tf32 = false;
  use_numbers(options);
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
  EXPECT_EQ(at::globalContext().allowBF16ReductionCuBLAS(),
            at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK);
}

TEST(DeviceTest, MemoryIsThatOfTheDevice) {
  testing::FakeAccelerator gpus;
  gpus.peak = 1000;
  const ScopedAcceleratorOverride instead(gpus);
  EXPECT_EQ(peak_memory_of(at::Device(at::kCUDA, 3))(), 1003);
  const double before = peak_resident_bytes();
  EXPECT_GE(peak_memory_of(at::kCPU)(), before);
}

TEST(DeviceTest, PeakBelongsToTheLongestMatchingName) {
  EXPECT_EQ(bfloat16_peak("NVIDIA H200"), 989.4e12);
  EXPECT_EQ(bfloat16_peak("NVIDIA H200 NVL"), 835e12);
  EXPECT_EQ(bfloat16_peak("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(bfloat16_peak("NVIDIA L40S"), 362e12);
  EXPECT_EQ(bfloat16_peak("NVIDIA L4"), 121e12);
  EXPECT_EQ(bfloat16_peak("Fake GPU"), 0);
}

}  // namespace
}  // namespace chimera

// --device cuda where there is no GPU, or no library for it; and which device and order a job has.

#include "train/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
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

TEST(DeviceTest, ProcessesHaveAGpuEachAndThreadsShareTheFirst) {
  EXPECT_EQ(device_of(on(DeviceKind::Cpu, TransportKind::Processes), RankId(3)), at::Device(at::kCPU));
  EXPECT_EQ(device_of(on(DeviceKind::Cuda, TransportKind::Processes), RankId(3)), at::Device(at::kCUDA, 3));
  EXPECT_EQ(device_of(on(DeviceKind::Cuda, TransportKind::Threads), RankId(3)), at::Device(at::kCUDA, 0));
}

TEST(DeviceTest, OnlyNcclNeedsOneQueueAPair) {
  EXPECT_EQ(discipline_of(on(DeviceKind::Cuda, TransportKind::Processes)), ChannelDiscipline::SerialPair);
  EXPECT_EQ(discipline_of(on(DeviceKind::Cuda, TransportKind::Threads)), ChannelDiscipline::PerDirection);
  EXPECT_EQ(discipline_of(on(DeviceKind::Cpu, TransportKind::Processes)), ChannelDiscipline::PerDirection);
}

TEST(DeviceTest, SaysWhereTheLibraryIsMissing) {
  try {
    static_cast<void>(open_accelerator("/nowhere/libchimera_cuda.so"));
    FAIL() << "there is none";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/nowhere/libchimera_cuda.so"), HasSubstr("./dev cuda-build")));
  }
}

TEST(DeviceTest, SaysWhyALibraryDoesNotLoad) {
  const std::string path = testing::text_file();  // no library
  try {
    static_cast<void>(open_accelerator(path));
    FAIL() << "it is a text";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cannot load " + path), HasSubstr("ELF"), HasSubstr("./dev cuda-build")));
  }
}

}  // namespace
}  // namespace chimera

#include "telemetry/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "core/error.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

std::string bytes(std::initializer_list<unsigned> values) {
  std::string text;
  for (const unsigned value : values) text += static_cast<char>(value);
  return text;
}

// Length 4, then checksums of the length and the data, each (crc >> 15 | crc << 17) + 0xa282ead8, as in the tensorboard
// package.
TEST(EventFileTest, ARecordIsFramedByMaskedChecksums) {
  EXPECT_EQ(event_record("data"), bytes({4, 0, 0, 0, 0, 0, 0, 0}) + bytes({0x42, 0x45, 0x52, 0x04}) + "data" +
                                      bytes({0x88, 0x48, 0x26, 0x9E}));
}

// Fields: wall_time 1.5, step 300 (a varint of two bytes), and a summary with a value for each number.
TEST(EventFileTest, AStepIsAnEventWithItsNumbers) {
  StepMetrics metrics;
  metrics.step = 300;
  metrics.loss = 2.5;
  const std::string event = step_event(metrics, 1.5);
  EXPECT_THAT(event, StartsWith(bytes({0x09, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F, 0x10, 0xAC, 0x02, 0x2A})));
  EXPECT_THAT(event, HasSubstr(bytes({0x0A, 11, 0x0A, 4}) + "loss" + bytes({0x15, 0, 0, 0x20, 0x40})));
  EXPECT_THAT(event, HasSubstr("tokens_per_second"));
  EXPECT_EQ(event.find("validation_loss"), std::string::npos);
  metrics.validation_loss = 3;
  metrics.utilization = 0.5;
  EXPECT_THAT(step_event(metrics, 1.5), HasSubstr(bytes({0x0A, 15}) + "validation_loss"));
  EXPECT_THAT(step_event(metrics, 1.5), HasSubstr(bytes({0x0A, 3}) + "mfu" + bytes({0x15, 0, 0, 0, 0x3F})));
}

TEST(EventFileTest, AFileBeginsWithItsVersion) {
  const testing::Scratch scratch;
  const std::string folder = scratch.path("a/new/folder");
  EXPECT_FALSE(has_events(folder));
  EventFile file(folder, 3);
  file.write({});
  EXPECT_TRUE(has_events(folder));
  const auto written = std::filesystem::directory_iterator(folder)->path();
  EXPECT_THAT(written.filename().string(), StartsWith("events.out.tfevents."));
  EXPECT_THAT(written.filename().string(), HasSubstr("." + std::to_string(::getpid())));
  EXPECT_THAT(read_file(written), HasSubstr(bytes({0x1A, 13}) + "brain.Event:2"));
}

// wall_time 1.5, step 300, and SessionLog{status: START}.
TEST(EventFileTest, ARestartDropsLaterSteps) {
  EXPECT_EQ(restart_event(300, 1.5), bytes({0x09, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F, 0x10, 0xAC, 0x02, 0x3A, 2, 8, 1}));
}

TEST(EventFileTest, AFolderThatCannotBeMadeIsRefused) {
  const testing::Scratch scratch;
  const std::string file = scratch.write("file", "text");
  EXPECT_THAT([&] { EventFile events(file + "/folder", 1); }, ThrowsMessage<ConfigError>(HasSubstr("--tensorboard")));
}

}  // namespace
}  // namespace chimera

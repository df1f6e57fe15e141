#include "telemetry/metrics.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "support/paths.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using ::testing::ThrowsMessage;

/// Limits the size of this process's files while it exists, to imitate a full disk.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &previous_);
    const rlimit small{bytes, previous_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    ::signal(SIGXFSZ, SIG_IGN);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &previous_);
    ::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit previous_{};
};

StepMetrics of_step(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  return metrics;
}

/// A metrics file with a line for each of these steps.
std::string with_steps(const testing::Scratch& scratch, const std::vector<std::int64_t>& steps,
                       const std::string& end = "") {
  std::string text;
  for (const std::int64_t step : steps) text += to_json_line(of_step(step));
  return scratch.write("metrics.jsonl", text + end);
}

TEST(MetricsFileTest, ContinuesAfterTheLineOfThePreviousStep) {
  const testing::Scratch scratch;
  const std::string expected = read_file(with_steps(scratch, {1, 2, 3, 4}));
  const std::string next_lines = to_json_line(of_step(4)) + to_json_line(of_step(5));
  for (const std::string& rest : {next_lines, std::string(), std::string("{\"step\": 3, \"lo"), std::string("\n\n")}) {
    const std::string path = with_steps(scratch, {1, 2, 3}, rest);
    MetricsFile(path, 3).write(of_step(4));
    EXPECT_EQ(read_file(path), expected);
  }
}

TEST(MetricsFileTest, ContinuesWithAnEmptyFileIfThereIsNone) {
  const testing::Scratch scratch;
  MetricsFile(scratch.path("metrics.jsonl"), 3).write(of_step(4));
  EXPECT_EQ(read_file(scratch.path("metrics.jsonl")), to_json_line(of_step(4)));
}

TEST(MetricsFileTest, EndsWithACompleteLineOnAFullDisk) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("metrics.jsonl");
  const std::string line = to_json_line({});
  const SmallDisk disk(2 * line.size() + line.size() / 2);
  MetricsFile file(path);
  for (int i = 0; i < 4; ++i) file.write({});
  EXPECT_EQ(read_file(path), line + line);
  EXPECT_THAT([&] { file.finish(); },
              ThrowsMessage<Error>(HasSubstr("metrics.jsonl: its last lines are missing: No space left on device")));
  EXPECT_EQ(read_file(path), line + line);
}

TEST(MetricsFileTest, HasAllLinesOnceTheDiskHasRoom) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("metrics.jsonl");
  std::string all;
  MetricsFile file(path);
  const auto write = [&](std::int64_t step) {
    file.write(of_step(step));
    all += to_json_line(of_step(step));
  };
  write(1);
  {
    const SmallDisk disk(all.size() + 10);
    write(2);
    write(3);
    EXPECT_EQ(read_file(path), to_json_line(of_step(1)));
  }
  write(4);
  EXPECT_EQ(read_file(path), all);
  {
    const SmallDisk disk(all.size());
    write(5);
  }
  file.finish();
  EXPECT_EQ(read_file(path), all);
}

TEST(MetricsFileTest, ClosedPipeIsNotAnError) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ::signal(SIGPIPE, SIG_IGN);
  MetricsFile file(path);
  file.write({});
  reader = FileDescriptor();
  EXPECT_NO_THROW(file.write({}));
  ::signal(SIGPIPE, SIG_DFL);
}

/// Names in the first column of a table: | `name` | ...
/// Of the first table of the page.
std::vector<std::string> documented_fields() {
  std::vector<std::string> names;
  for (const std::string& line : testing::lines_of(read_file(testing::source_path("/docs/metrics.md")))) {
    if (line.starts_with("| `")) names.push_back(line.substr(3, line.find('`', 3) - 3));
    if (line.empty() && !names.empty()) break;
  }
  return names;
}

TEST(MetricsFileTest, NonFiniteNumbersAreNull) {
  StepMetrics metrics;
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.gradient_norm = std::numeric_limits<double>::infinity();
  const auto line = read_json(to_json_line(metrics));
  EXPECT_TRUE(line.at("loss").is_null());
  EXPECT_TRUE(line.at("grad_norm").is_null());
}

TEST(MetricsFileTest, EveryFieldIsDocumented) {
  StepMetrics all;
  all.time = 1.5e9;
  all.used_memory_bytes = all.allocation_retries = all.utilization = all.seconds_left = all.validation_loss = 1;
  all.parameters_hash = all.sample = all.order = "0";
  all.workers = 3;
  all.factors = {1, 2};
  all.delays = {{0, 1, 0.04}, {1, 2, 0.5}};
  all.op_sum_seconds = 1;
  all.is_skipped = true;
  std::vector<std::string> written;
  const auto line = read_ordered_json(to_json_line(all));
  for (const auto& [name, value] : line.items()) written.push_back(name);
  EXPECT_EQ(documented_fields(), written);
}

}  // namespace
}  // namespace chimera

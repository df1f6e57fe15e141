#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "answers/check_answer.h"
#include "answers/record.h"
#include "core/error.h"
#include "core/files.h"
#include "simulate/simulate.h"
#include "support/paths.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<std::string> record_files() {
  std::vector<std::string> files;
  std::error_code none;  // a missing folder fails tests below, not the start of the program
  for (const auto& file : std::filesystem::directory_iterator(testing::source_path("/benchmarks/records"), none)) {
    if (file.path().extension() == ".json") files.push_back(file.path().string());
  }
  std::ranges::sort(files);
  return files;
}

Record read(const std::string& file) { return record_from_json(read_whole(file), file); }

class RecordTest : public ::testing::TestWithParam<std::string> {};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RecordTest);

TEST_P(RecordTest, IsWhatItClaims) {
  const Record record = read(GetParam());
  EXPECT_EQ(record.name + ".json", std::filesystem::path(GetParam()).filename());
  const CheckResult checked = check_everything(record.schedule, {.in_flight = record.max_in_flight}, false);
  EXPECT_TRUE(checked.is_valid()) << check_text(checked);
  const Timeline timeline = simulate(record.schedule, record.problem.costs);
  EXPECT_DOUBLE_EQ(timeline.makespan, record.makespan);
  EXPECT_GE(record.lower_bound, timeline.lower_bound * (1 - kRounding));
  SearchOptions options{.seconds = {}, .iterations = 30'000, .wants_front = false};
  const SearchResult result = search(record.problem, {record.schedule}, options);
  EXPECT_NEAR(result.lower_bound, record.lower_bound, kRounding * record.makespan);
}

INSTANTIATE_TEST_SUITE_P(All, RecordTest, ::testing::ValuesIn(record_files()), [](const auto& info) {
  std::string name = std::filesystem::path(info.param).stem().string();
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(RecordsTest, AreManyAndTenAreOpen) {
  const std::vector<std::string> files = record_files();
  ASSERT_GE(files.size(), 20U);
  EXPECT_LE(files.size(), 40U);
  const auto is_open = [](const std::string& file) {
    const Record record = read(file);
    return record.makespan > record.lower_bound * (1 + kRounding);
  };
  EXPECT_GE(std::ranges::count_if(files, is_open), 10);
}

TEST(RecordsTest, RefusesFilesThatAreNone) {
  const std::string text = read_whole(testing::source_path("/benchmarks/records/paper-d4-n4.json"));
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string copy = text;
    copy.replace(copy.find(from), from.size(), to);
    return [copy] { (void)record_from_json(copy, "mine.json"); };
  };
  EXPECT_THAT(changed(R"("makespan")", R"("length")"), ThrowsMessage<ConfigError>(HasSubstr("length")));
  EXPECT_THAT(changed(R"({"op": "F")", R"({"op": "B")"),
              ThrowsMessage<ConfigError>(HasSubstr("mine.json: schedule: ")));
}

}  // namespace
}  // namespace chimera

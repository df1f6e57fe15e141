// Runs whose order follows slow ranks (--adapt all): their numbers equal those of an undisturbed run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "core/json.h"
#include "multiprocess/training.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

Words adapted_training(const Scratch& scratch) {
  return small_training(scratch) +
         "--model gpt2-tiny --schedule chimera-zb --stages 2 --micro-batches 8 --steps 90 --reduction canonical "
         "--recover reroute";
}

/// Other work on the machine makes all ranks slow, and may hide a slow one in a run, so there are three runs at most.
ProgramResult run_that_says(const std::string& words, const Scratch& scratch, const std::string& faults) {
  ProgramResult result;
  for (int i = 0; i < 3 && result.messages.find(words) == std::string::npos; ++i) {
    std::filesystem::remove_all(scratch.path("run"));
    result = ProgramRun(adapted_training(scratch) + split("--checkpoint {} --adapt all --trace {} --report {}",
                                                          scratch.path("run"), scratch.path("trace.json"),
                                                          scratch.path("report.html")),
                        {.environment = {"CHIMERA_FAULT=" + faults}, .ranks = 2})
                 .wait();
  }
  EXPECT_THAT(result.messages, HasSubstr(words)) << result.output;
  return result;
}

/// Metrics without the fields that only a changed run has.
std::vector<nlohmann::json> numbers_of_all_steps(const Scratch& scratch) {
  std::vector<nlohmann::json> numbers = numbers_in(scratch);
  for (nlohmann::json& line : numbers) {
    for (const char* field : {"factors", "delays", "order", "workers"}) line.erase(field);
  }
  return numbers;
}

const std::vector<nlohmann::json>& undisturbed_numbers() {
  static const std::vector<nlohmann::json> numbers = [] {
    const Scratch scratch;
    EXPECT_EQ(ProgramRun(adapted_training(scratch), {.ranks = 2}).wait().exit_code, 0);
    return numbers_of_all_steps(scratch);
  }();
  return numbers;
}

TEST(TrainingAdaptTest, ARunWithSlowRanksEqualsTheUndisturbedRun) {
  ASSERT_EQ(undisturbed_numbers().size(), 90);
  for (const std::string faults : {"slow*5@step:1:3-40", "slow*5@step:1:3-90,kill@step:0:55"}) {
    SCOPED_TRACE(faults);
    const Scratch scratch;
    const ProgramResult result = succeeded(run_that_says(": rank 1 takes ", scratch, faults));
    EXPECT_FALSE(result.left_files);
    EXPECT_EQ(numbers_of_all_steps(scratch), undisturbed_numbers());
    EXPECT_THAT(result.messages, HasSubstr(" of its 8 micro-batches go to rank 0: "));
    EXPECT_THAT(result.output, HasSubstr("order changed (rank 1 takes "));
    EXPECT_THAT(result.output, HasSubstr(" (predicted)) in step "));
    EXPECT_THAT(read_file(scratch.path("report.html")), HasSubstr("<h2>Changes of the order</h2>"));
    const std::string trace = read_file(scratch.path("trace.json"));
    EXPECT_THAT(trace, HasSubstr("\"name\":\"order changed in step "));
    const nlohmann::json events = read_json(trace)["traceEvents"];
    std::set<std::int64_t> traced;
    for (const nlohmann::json& event : events) {
      if (event["ph"] == "X" && event["pid"] == 5) traced.insert(event["args"]["step"].get<std::int64_t>());
    }
    if (!faults.ends_with("55")) EXPECT_TRUE(traced.contains(90) && traced.size() <= 8) << "has " << traced.size();
    const auto lines = numbers_in(scratch);
    for (const char* field : {"factors", "order"})
      EXPECT_TRUE(std::ranges::any_of(lines, [&](const auto& line) { return line.contains(field); })) << field;
  }
}

TEST(TrainingAdaptTest, ARunWithASlowLinkEqualsTheUndisturbedRun) {
  const Scratch scratch;
  const ProgramResult result =
      run_that_says("messages between ranks 0 and 1 take 0.0", scratch, "delay*0.05@link:0-1:3-60");
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_EQ(numbers_of_all_steps(scratch), undisturbed_numbers());
  EXPECT_THAT(result.output, HasSubstr("order changed (messages between ranks 0 and 1 take 0.0"));
  EXPECT_TRUE(std::ranges::any_of(numbers_in(scratch), [](const auto& line) { return line.contains("delays"); }));
}

TEST(TrainingAdaptTest, ManyChangesAndAKillLoseNoStep) {
  const auto training = [](const Scratch& scratch) {
    return small_training(scratch) +
           "--model gpt2-tiny --schedule chimera-zb --stages 2 --micro-batches 8 --steps 130 --reduction canonical "
           "--recover twin";
  };
  const Scratch undisturbed;
  EXPECT_EQ(ProgramRun(training(undisturbed), {.ranks = 2}).wait().exit_code, 0);
  const Scratch scratch;
  const ProgramResult result =
      ProgramRun(
          training(scratch) + "--adapt all",
          {.environment =
               {"CHIMERA_FAULT=slow*6@step:1:3-40,delay*0.03@link:0-1:41-70,kill@step:1:80,slow*5@step:0:81-120"},
           .ranks = 2})
          .wait();
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_EQ(numbers_of_all_steps(scratch), numbers_of_all_steps(undisturbed));
  EXPECT_GE(occurrences(result.messages, "(predicted)"), 1) << result.messages;
}

TEST(TrainingAdaptTest, AResumedRunKeepsTheOrder) {
  const Scratch scratch;
  const ProgramResult first =
      run_that_says(": rank 1 takes ", scratch, "slow*5@step:1:3-90,terminate-launcher@step:0:60");
  EXPECT_EQ(first.exit_code, 75) << first.messages;
  for (const std::string adapt : {"none", "all"}) {
    SCOPED_TRACE(adapt);
    const Scratch copy;
    std::filesystem::copy(scratch.path(""), copy.path(""), std::filesystem::copy_options::recursive);
    const ProgramResult rest =
        ProgramRun(adapted_training(copy) + split("--checkpoint {} --resume auto --adapt {}", copy.path("run"), adapt),
                   {.ranks = 2})
            .wait();
    EXPECT_EQ(rest.exit_code, 0) << rest.messages;
    EXPECT_THAT(rest.messages, HasSubstr("begins with the order of ops in " + copy.path("run/order.json")));
    EXPECT_EQ(numbers_of_all_steps(copy), undisturbed_numbers());
    if (adapt == "none") EXPECT_TRUE(std::filesystem::exists(copy.path("run/order.json")));
  }
}

TEST(TrainingAdaptTest, ARefusalNamesWhatIsMissing) {
  const Scratch scratch;
  const ProgramResult result = ProgramRun(small_training(scratch) + "--model gpt2-tiny --stages 2 --adapt all").wait();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.messages, HasSubstr("--adapt all: changes the order as --recover twin and reroute do"));
}

}  // namespace
}  // namespace chimera::testing

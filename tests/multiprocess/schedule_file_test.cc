
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "support/refusal.h"
#include "training.h"

namespace chimera::testing {
namespace {

using nlohmann::json;

const Words kModel = "--model gpt2-tiny --steps 4 --validate-every 4 --dropout 0.1";

std::vector<json> file_train(const Words& flags, const std::string& input = "") {
  const Scratch scratch;
  const ProgramResult result = succeeded(run_program(small_training(scratch) + kModel + flags, input));
  expect_clean(result);
  return read_metrics(scratch.path("metrics.jsonl"));
}

void expect_trains_as_unpipelined(int micro_batches, const std::vector<json>& steps) {
  const auto reference = file_train(split("--schedule none --threads 1 --micro-batches {}", micro_batches));
  ASSERT_EQ(steps.size(), reference.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const auto& [field, value] : reference[i].items()) {
      if (field != "loss" && field != "grad_norm" && field != "validation_loss") continue;
      EXPECT_NEAR(steps[i].at(field).get<double>(), value.get<double>(), 1e-11 * value.get<double>())
          << field << " of step " << i + 1;
    }
  }
}

std::string printed_by(const Words& arguments) { return run_program(arguments).output; }

TEST(TrainingScheduleFileTest, SearchedSchedulesTrain) {
  const json found =
      read_json(printed_by("search --stages 2 --micro-batches 4 --iterations 2000 --seed 3 --format json"));
  const Scratch scratch;
  const std::string file = scratch.write("found.json", json_text(found["schedule"]));
  expect_trains_as_unpipelined(4, file_train({"--schedule", file}));
}

TEST(TrainingScheduleFileTest, CsvTrains) {
  const Scratch scratch;
  const std::string file =
      scratch.write("zb-v.csv", printed_by("schedule zb-v --stages 2 --micro-batches 3 --format csv"));
  expect_trains_as_unpipelined(3, file_train(split("--schedule {} --transport threads", file)));
  expect_trains_as_unpipelined(3, file_train(split("--schedule {} --transport threads", file)));
  expect_trains_as_unpipelined(6, file_train(split("--schedule {} --data-parallel 2", file)));
}

TEST(TrainingScheduleFileTest, StandardInputReachesEveryProcess) {
  const std::string text = printed_by("schedule chimera --stages 4 --micro-batches 4 --format json");
  expect_trains_as_unpipelined(4, file_train("--schedule -", text));
}

TEST(TrainingScheduleFileTest, HalfSizeMicroBatchesComeFromTheFile) {
  const Scratch scratch;
  const std::string file = scratch.write(
      "halving.csv", printed_by("schedule chimera --stages 2 --micro-batches 4 --scale halving --format csv"));
  const auto steps = file_train({"--schedule", file});
  expect_trains_as_unpipelined(4, steps);  // the loss is a mean over the step's tokens, for any grouping
  EXPECT_EQ(steps[0]["tokens"], 4 * 2 * 32);
}

TEST(TrainingScheduleFileTest, AsynchronousSchedulesTrainToo) {
  const Scratch scratch;
  const Words shape = "pipedream --stages 2 --micro-batches 2";
  const std::string file = scratch.write("pipedream.json", printed_by(Words{"schedule"} + shape + "--format json"));
  const auto steps = file_train({"--schedule", file});
  const auto generated = file_train(Words{"--schedule"} + shape);
  ASSERT_EQ(steps.size(), 4U);
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i]["loss"], generated[i]["loss"]);
}

TEST(TrainingScheduleFileTest, RefusesInOneLine) {
  const Scratch scratch;
  const std::string good =
      scratch.write("good.json", printed_by("schedule gpipe --stages 2 --micro-batches 2 --format json"));
  const std::string incomplete = scratch.write("incomplete.csv", "0F0,0B0,0F1\n1F0,1B0,1F1,1B1\n");
  const std::string crossed = scratch.write("crossed.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  const auto with = [&](const Words& flags) { return small_training(scratch) + "--model gpt2-tiny" + flags; };
  for (const Refusal& refusal : std::vector<Refusal>{
           {with(split("--schedule {} --stages 2", good)), {"has a shape already", "leave out --stages"}},
           {with(split("--schedule {} --waves 1", good)), {"has a shape already"}},
           {with(split("--schedule {} --stages 2", good)), {"good.json has a shape already", "leave out --stages"}},
           {with({"--schedule", scratch.path("missing.json")}), {"missing.json", "No such file"}},
           {with({"--schedule", scratch.path("")}), {"is a directory"}},
           {with({"--schedule", scratch.write("not.csv", "0F0,hello\n")}), {"not.csv", "hello"}},
           {with({"--schedule", scratch.write("empty.json", "")}), {"empty.json"}},
           {with({"--schedule", incomplete}), {"incomplete.csv: 0B1 ", "is missing", "`chimera check "}},
           {with({"--schedule", crossed}), {"crossed.csv: ", "`chimera check "}},
           {with({"--schedule-file", good}), {"`chimera train --schedule-file` is now `chimera train --schedule`"}},
           {with(split("--schedule {} --layers 1", good)), {"cannot cut 1 layers into 2 stages"}},
           {with(split("--schedule {} --metrics {}", good, good)), {"the run reads this file"}},
       }) {
    expect_refusal(refusal);
  }
  EXPECT_THAT(read_file(good), ::testing::HasSubstr("chimera-schedule"));
}

}  // namespace
}  // namespace chimera::testing

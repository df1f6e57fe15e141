// Traces, times and pages written by processes, and subcommands that read them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/json.h"
#include "training.h"

namespace chimera::testing {
namespace {

using nlohmann::json;

TEST(TrainingObservationTest, ProcessesWriteATraceTimesAndAPage) {
  const Scratch scratch;
  const std::string times = scratch.path("times.json");
  const Words files = split("--trace {} --op-times {} --timeline {} --report {}", scratch.path("trace.json"), times,
                            scratch.path("page.html"), scratch.path("report.html"));
  const ProgramResult result =
      succeeded(run_program(small_training(scratch) + "--model gpt2-tiny --stages 4 --steps 10" + files));
  EXPECT_FALSE(result.left_files);

  const json events = read_json(read_file(scratch.path("trace.json")))["traceEvents"];
  std::map<std::string, std::map<int, int>> ops;  // by name, by worker
  int all_reduces = 0;
  for (const json& event : events) {
    if (event["ph"] == "X" && event["pid"] == 1) ++ops[event["name"]][event["tid"].get<int>() - 1];
    if (event["ph"] == "X" && event["pid"] == 3) ++all_reduces;
  }
  EXPECT_EQ(ops["2F0"], (std::map<int, int>{{2, 8}})) << "micro-batch 0 goes down; the last 8 steps are kept";
  EXPECT_EQ(ops["2F3"], (std::map<int, int>{{1, 8}})) << "micro-batch 3 goes up";
  EXPECT_EQ(ops["optimizer step"].size(), 4U);
  EXPECT_EQ(all_reduces, 8 * 4 * 2) << "two stages a worker";

  EXPECT_GT(read_json(output_of(
                split("simulate chimera --stages 4 --micro-batches 4 --costs {} --format json", times)))["makespan"]
                .get<double>(),
            0);
  EXPECT_THAT(read_file(scratch.path("page.html")), ::testing::HasSubstr("step "));
  const std::string report = read_file(scratch.path("report.html"));
  EXPECT_THAT(report, ::testing::HasSubstr("gpt2-tiny with chimera"));
  EXPECT_THAT(report, ::testing::HasSubstr("<h2>Predicted and measured</h2>"));
  EXPECT_THAT(report, ::testing::HasSubstr("as it ran, in seconds"));
}

TEST(TrainingObservationTest, ReportOfAResumedRunHasEarlierSteps) {
  const Scratch scratch;
  const std::string page = scratch.path("report.html");
  const Words run = small_training(scratch) +
                    split("--model gpt2-tiny --stages 2 --save-every 2 --checkpoint {}", scratch.path("run"));
  ASSERT_EQ(run_program(run + "--steps 2").exit_code, 0);
  succeeded(run_program(run + split("--steps 5 --resume auto --report {}", page)));
  const std::string svg = read_file(page);
  const auto end = svg.find("\" class=\"s0\"");  // end of the loss curve, with a point for each step
  const auto begin = svg.rfind("<path", end);
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(
      std::count(svg.begin() + static_cast<std::ptrdiff_t>(begin), svg.begin() + static_cast<std::ptrdiff_t>(end), 'L'),
      4)
      << "five points, of which three are this start's";
}

/// Bytes that `chimera model` predicts for the stages of gpt2-tiny in that training.
json counted_stages() {
  return read_json(output_of(
      "model gpt2-tiny --stages 2 --micro-batch-size 2 --sequence 32 --dtype float64 --format json"))["stages"];
}

TEST(TrainingObservationTest, RanksWriteTheirMemory) {
  const json stages = counted_stages();
  for (const char* transport : {"processes", "threads"}) {
    const Scratch scratch;
    const std::string file = scratch.path("tensors.json");
    succeeded(run_program(
        small_training(scratch) +
        split(
            "--model gpt2-tiny --schedule 1f1b --stages 2 --steps 2 --partition even --transport {} --tensor-memory {}",
            transport, file)));
    const json bytes = read_json(read_file(file))["peak_bytes"];
    ASSERT_EQ(bytes.size(), 2U);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const auto of_stage = [&](const char* field) { return stages[rank].at(field).get<double>(); };
      const double in_flight = rank == 0 ? 2 : 1;  // micro-batches: 0F0 0F1 0B0 0B1, 1F0 1B0 1F1 1B1
      const double message = stages[1].at("boundary_bytes").get<double>();
      const double held = of_stage("weights_bytes") + of_stage("gradients_bytes") + of_stage("optimizer_bytes") +
                          in_flight * of_stage("activations_bytes");
      // With threads, stage inputs belong to the sender, though activations count them. A channel has up to five
      // messages in each direction: being made, sent, in flight, received and used.
      EXPECT_GE(bytes[rank].get<double>(), held - in_flight * message) << transport << ", rank " << rank;
      EXPECT_LE(bytes[rank].get<double>(), held + stages[rank]["working_set_bytes"]["B"].get<double>() + 10 * message)
          << transport << ", rank " << rank;
    }
  }
}

TEST(TrainingObservationTest, AFailedRunLeavesTheFilesOfTheLast) {
  const Scratch scratch;
  const std::string trace = scratch.write("trace.json", "the last trace");
  const ProgramResult result = run_program(
      small_training(scratch) +
      split("--model gpt2-tiny --stages 2 --steps 20 --optimizer sgd --learning-rate 1e100 --clip 0 --trace {}",
            trace));
  EXPECT_EQ(result.exit_code, 1) << result.messages;
  EXPECT_EQ(read_file(trace), "the last trace");
  EXPECT_FALSE(std::filesystem::exists(trace + ".unfinished"));
}

}  // namespace
}  // namespace chimera::testing

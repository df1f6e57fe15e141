
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "support/paths.h"
#include "support/program.h"
#include "support/refusal.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// `chimera search` with costs of eight stages, a limit, and few enough iterations to take milliseconds.
Words search_with(const Words& flags) {
  return "search --input-gradient 1.3 --weight-gradient 0.7 --latency 0.1 --iterations 3000" + flags;
}

json found(const Words& flags) { return read_json(output_of(search_with(flags) + "--format json")); }

TEST(SearchCommandTest, SimulateAndCheckConfirmItsResult) {
  const json result = found("--stages 8 --micro-batches 16 --max-in-flight 9 --placement bidirectional");
  const std::string schedule = json_text(result["schedule"]);
  EXPECT_EQ(run_program("check -", schedule).exit_code, 0);
  const json timeline = read_json(
      run_program("simulate --file - --input-gradient 1.3 --weight-gradient 0.7 --latency 0.1 --format json", schedule)
          .output);
  EXPECT_EQ(timeline["makespan"], result["makespan"]);
  EXPECT_LE(result["lower_bound"], result["makespan"]);
  EXPECT_NEAR(result["gap"].get<double>(), result["makespan"].get<double>() / result["lower_bound"].get<double>() - 1,
              1e-12);
  double peak = 0;
  for (const json& worker : timeline["workers"]) peak = std::max(peak, worker["peak_in_flight"].get<double>());
  EXPECT_EQ(result["peak_in_flight"], peak);
  EXPECT_LE(peak, 9);
  EXPECT_EQ(result["pareto"][0]["makespan"], result["makespan"]);
  EXPECT_TRUE(result["origin"].is_string());
}

TEST(SearchCommandTest, WritesAScheduleThatOtherCommandsTake) {
  const Scratch scratch;
  const std::string file = scratch.path("found.json");
  const json result = found(split("--stages 2 --micro-batches 4 --output {}", file));
  EXPECT_EQ(read_json(read_file(file)), result["schedule"]);
  EXPECT_EQ(run_program({"check", file}).exit_code, 0);
  const std::string table = scratch.path("found.csv");
  static_cast<void>(found(split("--stages 2 --micro-batches 4 --placement linear --output {}", table)));
  EXPECT_THAT(read_file(table), ::testing::StartsWith("0F0,"));
  EXPECT_EQ(run_program({"check", table}).exit_code, 0);
}

TEST(SearchCommandTest, SaysWhetherTheBoundProvesTheOptimum) {
  const json small = found("--stages 2 --micro-batches 2");
  EXPECT_EQ(small["optimal"], true);
  EXPECT_EQ(small["makespan"], small["lower_bound"]);
  const json large = found("--stages 8 --micro-batches 16 --max-in-flight 9");
  EXPECT_EQ(large["optimal"], large["gap"] == 0);
}

TEST(SearchCommandTest, TheSeedDecides) {
  const Words flags = "--stages 8 --micro-batches 16 --max-in-flight 9 --placement bidirectional --seed";
  const auto with_seed = [&](const std::string& seed) {
    Words words = flags;
    words.push_back(seed);
    return found(words);
  };
  EXPECT_EQ(with_seed("5"), with_seed("5"));
  EXPECT_NE(with_seed("5"), with_seed("6"));
}

TEST(SearchCommandTest, EveryPlacement) {
  const Words shape = "--stages 4 --micro-batches 6";
  const auto stages = [&](const Words& flags) {
    Words words = shape + flags;
    const json result = found(words);
    return std::pair(result["schedule"]["stages"].get<int>(), result["schedule"]["replicas"].size());
  };
  EXPECT_EQ(stages("--placement bidirectional"), std::pair(4, std::size_t{2}));
  EXPECT_EQ(stages("--pipelines 4"), std::pair(4, std::size_t{4}));
  EXPECT_EQ(stages("--placement linear"), std::pair(4, std::size_t{1}));
  EXPECT_EQ(stages("--placement loop --chunks 3"), std::pair(12, std::size_t{1}));
  EXPECT_EQ(stages("--placement loop"), std::pair(8, std::size_t{1}));
  EXPECT_EQ(stages("--placement bidirectional --chunks 2"), std::pair(8, std::size_t{2}));
  EXPECT_EQ(stages("--pipelines 4 --chunks 2"), std::pair(8, std::size_t{4}));
  EXPECT_EQ(stages("--placement v"), std::pair(8, std::size_t{1}));
  EXPECT_EQ(stages("--placement wave --waves 2"), std::pair(16, std::size_t{1}));
}

/// Costs of eight stages; the last takes twice as long as the first.
json unequal_costs() {
  json stages = json::array();
  for (int s = 0; s < 8; ++s) {
    const double forward = 0.65 + 0.1 * s;
    stages.push_back({{"forward", forward}, {"input_gradient", 1.3 * forward}, {"weight_gradient", 0.7 * forward}});
  }
  return {{"latency", 0.1}, {"stages", stages}};
}

TEST(SearchCommandTest, TriesAllPlacementsThatTheFlagsAllow) {
  const Scratch scratch;
  const Words words =
      split("search --stages 8 --micro-batches 16 --costs {} --max-in-flight 9 --pipelines 2 --iterations 3000",
            scratch.write("costs.json", json_text(unequal_costs())));
  const ProgramResult text = run_program(words);
  EXPECT_THAT(text.output, HasSubstr("placement bidirectional, the best of bidirectional, rotated\n"));
  const json result = read_json(run_program(words + "--format json").output);
  EXPECT_EQ(result["placement"], "bidirectional") << "rotated ends after 58.2";
  EXPECT_LT(result["makespan"].get<double>(), 56);
  const json odd = found("--stages 5 --micro-batches 5");
  EXPECT_NE(odd["placement"], "bidirectional") << "needs an even number of workers";
}

TEST(SearchCommandTest, ImprovesAScheduleOnItsOwnPlacement) {
  const Words shape = "--stages 4 --micro-batches 8";
  Words generate = "schedule gpipe --format json" + shape;
  const std::string text = run_program(generate).output;
  const Scratch scratch;
  const json improved = found({scratch.write("mine.json", text), "--max-in-flight", "4"});
  EXPECT_EQ(improved["schedule"]["replicas"], read_json(text)["replicas"]);
  EXPECT_EQ(improved["placement"], "gpipe");
  EXPECT_LE(improved["peak_in_flight"], 4);
  EXPECT_EQ(found(Words{"zb-v"} + shape)["schedule"]["stages"], 8);
  expect_refusal({split("search {} --stages 4", scratch.path("mine.json")), {"mine.json has a shape already"}});
  expect_refusal({split("search {} --placement v", scratch.path("mine.json")), {"leave out --placement"}});
  expect_refusal({"search pipedream --stages 4 --micro-batches 8", {"only synchronous schedules"}});
}

TEST(SearchCommandTest, ABackwardIsWholeIfItsCostIs) {
  const auto ops = [](const Words& flags) {
    Words words = "search --stages 2 --micro-batches 2 --format json --iterations 500" + flags;
    const json result = read_json(run_program(words).output);
    std::string letters;
    for (const json& op : result["schedule"]["workers"][0]) letters += op["op"].get<std::string>();
    return letters;
  };
  EXPECT_THAT(ops("--backward 2"), HasSubstr("B"));
  EXPECT_THAT(ops({"--whole-backward"}), HasSubstr("B"));
  EXPECT_THAT(ops({}), HasSubstr("W"));
  EXPECT_THAT(ops("--input-gradient 1 --weight-gradient 1"), HasSubstr("W"));
}

TEST(SearchCommandTest, ReadsCostsOfEveryStage) {
  const Scratch scratch;
  const std::string file =
      scratch.write("costs.json",
                    R"({"latency": 0, "stages": [{"forward": 1, "input_gradient": 1, "weight_gradient": 1},
                                   {"forward": 3, "input_gradient": 3, "weight_gradient": 3}]})");
  const ProgramResult result = run_program(
      split("search --stages 2 --micro-batches 4 --placement linear --costs {} --iterations 2000 --format json", file));
  EXPECT_EQ(result.messages, "");
  // Worker 1 works for 4 x 9 after the first forward. Worker 0 still has I and W after its last gradient, while worker
  // 1 runs its W.
  EXPECT_EQ(read_json(result.output)["makespan"], 1 + 4 * 9);
  EXPECT_EQ(read_json(result.output)["gap"], 0);
}

TEST(SearchCommandTest, ShowsTheParetoFrontAsATable) {
  const ProgramResult result = run_program(search_with("--stages 4 --micro-batches 4"));
  EXPECT_THAT(result.output, HasSubstr("worker 0 | 0F"));
  EXPECT_THAT(result.output, HasSubstr("makespan  peak in flight  found by\n"));
}

TEST(SearchCommandTest, RefusesInOneLine) {
  for (const Refusal& refusal : std::vector<Refusal>{
           {search_with("--stages 8 --micro-batches 8 --max-in-flight 0.5"),
            {"--max-in-flight is infeasible", "worker 0 has no memory for micro-batch 0"}},
           {search_with("--stages 8 --micro-batches 8 --memory 3"), {"--memory needs"}},
           {search_with("--stages 8 --micro-batches 8 --weight-bytes 3"), {"--memory", "give that"}},
           {search_with("--stages 8 --micro-batches 8 --memory 3 --weight-bytes 4 --activation-bytes 1"),
            {"--memory is infeasible", "worker 0"}},
           {search_with("--micro-batches 8"), {"--stages is missing"}},
           {search_with("--stages 8"), {"--micro-batches is missing"}},
           {search_with("--stages 5 --micro-batches 8 --placement bidirectional"), {"--stages must be even", "linear"}},
           {search_with("--stages 8 --micro-batches 1000000000000"), {"more than", "use fewer"}},
           {search_with("--stages 8 --micro-batches 8 --scale doubling"), {"--scale does not apply"}},
           {search_with("--stages 8 --micro-batches 8 --slices 257"), {"--slices must be at most 256"}},
           {search_with("--stages 8 --micro-batches 8 --placement v --waves 2"),
            {"--waves does not apply to --placement v"}},
           {search_with("--stages 8 --micro-batches 8 --placement wave --chunks 2"),
            {"--chunks does not apply to --placement wave, which takes --waves"}},
           {search_with("--stages 8 --micro-batches 8 --placement bidirectonal"), {"did you mean 'bidirectional'?"}},
           {search_with("--stages 8 --micro-batches 8 --seed -1"), {"--seed"}},
           {"search --stages 8 --micro-batches 8 --iterations 0", {"--iterations", "1 or more"}},
           {"search --stages 8 --micro-batches 8 --forward 1e308", {"too large"}},
       }) {
    expect_refusal(refusal);
  }
}

TEST(SearchCommandTest, TriesToBeatARecord) {
  const ProgramResult named = run_program("search --record paper-d4-n4 --iterations 100");
  EXPECT_EQ(named.exit_code, 1);
  EXPECT_THAT(named.output, HasSubstr("Nobody can beat the record"));
  const Scratch scratch;
  std::string text = read_file(source_path("/benchmarks/records/paper-d4-n4.json"));
  const std::string makespan = R"("makespan": 16)";
  text.replace(text.find(makespan), makespan.size(), R"("makespan": 17)");
  const std::string file = scratch.write("mine.json", text);
  EXPECT_THAT(output_of(split("search --record {} --iterations 100", file)), HasSubstr("The search beats the record"));
}

TEST(SearchCommandTest, RefusesFlagsThatWouldChangeARecord) {
  expect_refusal({"search --record paper-d4-n4 --stages 4", {"--record", "--stages"}});
  expect_refusal({"search chimera --record paper-d4-n4", {"--record", "NAME"}});
  expect_refusal({"search --record no-such-record", {"unknown record", "no-such-record"}});
}

}  // namespace
}  // namespace chimera::testing

#include "simulate/costs_json.h"
#include "simulate/cost_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/generators.h"
#include "support/message_of.h"

namespace chimera {
namespace {

CostModel read(const std::string& text, std::int64_t stages = 2) { return costs_from_json(text, "costs.json", stages); }

/// Error message for unreadable text.
std::string refusal(const std::string& text, std::int64_t stages = 2) {
  return testing::message_of([&] { (void)read(text, stages); }, "read");
}

std::string with(const std::string& fields) {
  return R"({"latency": 0.1, "stages": [{"forward": 1, "backward": 2}, {"forward": 3, "backward": 4}])" + fields + "}";
}

TEST(CostsJsonTest, LinksHaveTimesOrBytes) {
  const CostModel costs = read(with(R"(, "links": {"alpha": 1, "seconds": [3]})"));
  EXPECT_EQ(costs.links->alpha, 1);
  EXPECT_EQ(costs.links->times(), std::vector<double>{3});
  EXPECT_EQ(costs_from_json(costs_to_json(costs), "costs", 2).links->seconds, std::vector<double>{3});
  EXPECT_EQ(read(with(R"(, "links": {"alpha": 1, "beta": 2, "bytes": [3]})")).links->times(), std::vector<double>{6});
  EXPECT_THAT(refusal(with(R"(, "links": {"alpha": 1, "beta": 2, "seconds": [3]})")), ::testing::HasSubstr("beta"));
  EXPECT_THAT(refusal(with(R"(, "links": {"alpha": 1, "seconds": [3, 4]})")), ::testing::HasSubstr("seconds"));
}

TEST(CostsJsonTest, ReadsTheTimeOfAPair) {
  const CostModel costs = read(with(R"(, "pair": 0.8)"));
  EXPECT_EQ(costs.pair, 0.8);
  EXPECT_EQ(read(costs_to_json(costs)).pair, 0.8);
  EXPECT_FALSE(read(with("")).pair);
  EXPECT_THAT(refusal(with(R"(, "pair": -1)")), ::testing::HasSubstr("pair: expected a finite number of 0 or more"));
}

TEST(CostsJsonTest, ReadsTheCostsOfOffloading) {
  const CostModel costs = read(with(R"(, "offload": {"beta": 0.5, "bytes": [3, 0]})"));
  EXPECT_EQ(costs.offload->beta, 0.5);
  EXPECT_EQ(costs.offload->bytes, (std::vector<double>{3, 0}));
  EXPECT_EQ(costs_to_json(read(costs_to_json(costs))), costs_to_json(costs));
  EXPECT_FALSE(read(with("")).offload);
  EXPECT_THAT(refusal(with(R"(, "offload": {"beta": 0.5, "bytes": [3]})")), ::testing::HasSubstr("offload.bytes"));
}

TEST(CostsJsonTest, ReadsFactorsOfWorkersAndMicroBatches) {
  const CostModel costs = read(with(R"(, "workers": [1, 2], "micro_batches": [0.5, 1, 1.5])"));
  EXPECT_EQ(costs.workers, (std::vector<double>{1, 2}));
  EXPECT_EQ(costs.micro_batches, (std::vector<double>{0.5, 1, 1.5}));
  EXPECT_EQ(costs_to_json(read(costs_to_json(costs))), costs_to_json(costs));
  EXPECT_THAT(refusal(with(R"(, "workers": [1, 0])")), ::testing::HasSubstr("workers[1]: expected a factor above 0"));
  EXPECT_THAT(refusal(with(R"(, "micro_batches": [])")), ::testing::HasSubstr("micro_batches: expected a list"));
}

TEST(CostsJsonTest, ReadsTheCostsOfSlices) {
  const CostModel costs = read(with(R"(, "attention": 0.25, "slice_bounds": [0, 0.6, 1])"));
  EXPECT_EQ(costs.slices, (SliceCosts{0.25, {0, 0.6, 1}}));
  EXPECT_EQ(read(costs_to_json(costs)).slices, costs.slices);
  EXPECT_EQ(read(with("")).slices, SliceCosts{});
  EXPECT_EQ(costs_to_json(read(with(""))).find("slice"), std::string::npos);
}

TEST(CostsJsonTest, StepsMayOverlap) {
  const CostModel costs = read(with(R"(, "steps_overlap": true)"));
  EXPECT_TRUE(costs.steps_overlap);
  EXPECT_TRUE(read(costs_to_json(costs)).steps_overlap);
  EXPECT_FALSE(read(with("")).steps_overlap);
}

TEST(CostsJsonTest, LinksHaveCopiesAtTheirEndsAndKinds) {
  const CostModel costs =
      read(with(R"(, "links": {"alphas": [[0, 1], [2, 0]], "betas": [[0, 3], [4, 0]], "bytes": [5], "copies": [6]})"));
  EXPECT_EQ(costs.links->matrix->alphas[1][0], 2);
  EXPECT_EQ(costs.links->matrix->betas[0][1], 3);
  EXPECT_EQ(costs.links->bytes, std::vector<double>{5});
  EXPECT_EQ(costs.links->copies, std::vector<double>{6});
  EXPECT_EQ(costs_to_json(read(costs_to_json(costs))), costs_to_json(costs));
  const CostModel bursts = read(with(R"(, "links": {"alpha": 1, "beta": 2, "bytes": [3], "bursts": [4]})"));
  EXPECT_EQ(bursts.links->bursts, std::vector<double>{4});
  EXPECT_EQ(costs_from_json(costs_to_json(bursts), "costs", 2).links->bursts, std::vector<double>{4});
  EXPECT_EQ(read(with(R"(, "links": {"alpha": 1, "beta": 2, "bytes": [3], "copies": 7})")).links->copies,
            std::vector<double>{7});
  EXPECT_THAT(refusal(with(R"(, "links": {"alphas": [[0, 1], [2]]})")),
              ::testing::HasSubstr("costs.json: links.alphas[1]: "));
  EXPECT_THAT(refusal(with(R"(, "links": {"alphas": [[0, 1], [2, 0]], "betas": [[0]]})")),
              ::testing::HasSubstr("links.betas: 1 rows, but alphas has 2"));
  EXPECT_THAT(refusal(with(R"(, "links": {"alphas": [[0, 1], [2, 0]], "betas": [[0, 1], [2, 0]]})")),
              ::testing::HasSubstr("'bytes' is missing"));
}

TEST(CostsJsonTest, ReadsWhatItWrites) {
  const std::string text = with(R"(, "links": {"alpha": 1, "beta": 2, "bytes": [3]},
      "all_reduce": {"seconds": [0.1, 0.7], "tied": 0.25}, "optimizer": [8, 9], "recompute": 10,
      "memory": [{"weights": 1, "gradients": 2, "optimizer": 3, "activations": 4, "boundary": 5},
                 {"weights": 6, "gradients": 7, "optimizer": 8, "activations": 9, "boundary": 10, "deferred": 5}])");
  const std::string written = costs_to_json(read(text));
  EXPECT_EQ(costs_to_json(read(written)), written);
  const CostModel costs = read(written);
  EXPECT_EQ(costs.stages[1].backward, 4);
  EXPECT_EQ(costs.all_reduce->seconds, (std::vector<double>{0.1, 0.7, 0.25}));
  EXPECT_EQ(costs.memory[1].boundary, 10);
  EXPECT_EQ(costs.memory[1].deferred, 5);
  EXPECT_FALSE(costs.memory[0].deferred);
}

TEST(CostsJsonTest, ReadsStagesInEitherForm) {
  const CostModel costs = read(R"({"latency": 0.5, "stages": [{"forward": 1, "backward": 4},
                                   {"forward": 1.5, "input_gradient": 1.3, "weight_gradient": 0.7}]})");
  EXPECT_EQ(costs.latency, 0.5);
  EXPECT_EQ(costs.stages[0].backward, 4);
  EXPECT_EQ(costs.stages[0].input_gradient, 2);
  EXPECT_EQ(costs.stages[0].weight_gradient, 2);
  EXPECT_EQ(costs.stages[1].forward, 1.5);
  EXPECT_EQ(costs.stages[1].input_gradient, 1.3);
  EXPECT_EQ(costs.stages[1].weight_gradient, 0.7);
  EXPECT_EQ(costs.stages[1].backward, 2);
  EXPECT_FALSE(costs.links || costs.all_reduce || !costs.optimizer.empty() || !costs.recompute.empty());
}

TEST(CostsJsonTest, ReadsEverythingElse) {
  const CostModel costs = read(with(R"(, "links": {"alpha": 1, "beta": 2, "bytes": [3]},
      "all_reduce": {"alpha": 4, "beta": 5, "bytes": [6, 7]}, "optimizer": [8, 9], "recompute": 10,
      "memory": [{"weights": 1, "gradients": 2, "optimizer": 3, "activations": 4, "boundary": 5},
                 {"weights": 6, "gradients": 7, "optimizer": 8, "activations": 9, "boundary": 10}])"));
  EXPECT_EQ(costs.links->alpha, 1);
  EXPECT_EQ(costs.links->bytes, (std::vector<double>{3}));
  EXPECT_EQ(costs.all_reduce->beta, 5);
  EXPECT_EQ(costs.all_reduce->bytes, (std::vector<double>{6, 7}));
  EXPECT_EQ(costs.optimizer, (std::vector<double>{8, 9}));
  EXPECT_EQ(costs.recompute, (std::vector<double>{10, 10})) << "one number stands for all stages";
  EXPECT_EQ(costs.memory[1].boundary, 10);
  EXPECT_EQ(read(with(R"(, "all_reduce": {"seconds": [1, 2]})")).all_reduce->seconds, (std::vector<double>{1, 2}));
  EXPECT_TRUE(read(with(R"(, "all_reduce": {"seconds": [1, 2], "tied": 3})")).all_reduce->tied);
}

TEST(CostsJsonTest, ReduceScatterIsHalfOfAnAllReduce) {
  const Schedule schedule = chimera({.stages = 2, .micro_batches = 2});
  const auto seconds = [&](const std::string& more) {
    const CostModel costs = read(with(R"(, "all_reduce": {"alpha": 4, "beta": 5, "bytes": [6, 7])" + more + "}"));
    EXPECT_EQ(read(costs_to_json(costs)).all_reduce->reduce_scatter, costs.all_reduce->reduce_scatter);
    return CostTable(schedule, costs).all_reduce(ParameterGroupId(0));
  };
  EXPECT_DOUBLE_EQ(seconds(""), 2 * 4 + 2 * 0.5 * 5 * 6);
  EXPECT_DOUBLE_EQ(seconds(R"(, "reduce_scatter": false)"), 2 * 4 + 2 * 0.5 * 5 * 6);
  EXPECT_DOUBLE_EQ(seconds(R"(, "reduce_scatter": true)"), 4 + 0.5 * 5 * 6);
  EXPECT_THAT(refusal(with(R"(, "all_reduce": {"seconds": [1, 2], "reduce_scatter": true})")),
              ::testing::HasSubstr("costs.json: all_reduce: unknown field 'reduce_scatter'"));
}

TEST(CostsJsonTest, RefusalsNameThePlace) {
  EXPECT_EQ(refusal(with(""), 3), "costs.json: stages: 2 entries; expected 3, one for each stage");
  EXPECT_EQ(refusal(R"({"latency": 0, "stages": [{"forward": -1, "backward": 2}]})", 1),
            "costs.json: stages[0].forward: expected a finite number of 0 or more, found -1");
  EXPECT_EQ(refusal(R"({"latency": 0, "stages": [{"backward": 2}]})", 1),
            "costs.json: stages[0]: field 'forward' is missing");
  EXPECT_EQ(refusal(R"({"latency": 0, "stages": [{"forward": 1}]})", 1),
            "costs.json: stages[0]: field 'backward' is missing, or 'input_gradient' and 'weight_gradient'");
  EXPECT_EQ(refusal(R"({"latency": 0, "stages": [{"forward": 1, "input_gradient": 1}]})", 1),
            "costs.json: stages[0]: field 'weight_gradient' is missing");
  EXPECT_EQ(refusal(R"({"stages": []})", 0), "costs.json: top level: field 'latency' is missing");
  EXPECT_EQ(refusal(R"({"latency": "0"})"), "costs.json: latency: expected a number, found string");
  EXPECT_EQ(refusal(with(R"(, "link": {})")), "costs.json: top level: unknown field 'link'; did you mean 'links'?");
  EXPECT_EQ(refusal(with(R"(, "links": {"alpha": 0, "beta": 0, "bytes": [1, 2]})")),
            "costs.json: links.bytes: 2 entries; expected 1, one for each boundary between stages");
  EXPECT_EQ(refusal(with(R"(, "all_reduce": {"alpha": 0, "beta": 0})")),
            "costs.json: all_reduce: field 'bytes' is missing");
  EXPECT_EQ(refusal("[]"), "costs.json: top level: expected an object, found array");
}

TEST(CostsJsonTest, RefusesNumbersWithInfiniteSums) {
  EXPECT_EQ(refusal(R"({"latency": 1e308, "stages": []})", 0),
            "costs.json: latency: expected a number of at most 1e+100, found 1e+308");
}

TEST(CostsJsonTest, RefusesADuplicateField) {
  EXPECT_EQ(refusal(with(R"(, "latency": 0.1)")),
            "costs.json: latency: the field is given twice; leave one of them out");
  EXPECT_EQ(refusal(R"({"latency": 0, "stages": [{"forward": 1, "backward": 2}, {"forward": 3, "forward": 4}]})"),
            "costs.json: stages[1].forward: the field is given twice; leave one of them out");
  EXPECT_EQ(refusal(with(R"(, "links": {"alpha": 0, "bytes": [1], "beta": 0, "alpha": 1})")),
            "costs.json: links.alpha: the field is given twice; leave one of them out");
}

TEST(CostsJsonTest, RefusesInvalidJson) {
  for (const char* text : {"", "{", "{\"latency\": nan}", "{\"latency\": 1e999}", "{\"latency\": Infinity}"})
    EXPECT_TRUE(refusal(text).starts_with("costs.json: JSON: ")) << text << ": " << refusal(text);
}

TEST(CostsJsonTest, QuotesForeignTextOnOneShortLine) {
  EXPECT_EQ(refusal(R"({"late\ncy": 0, "late\ncy": 0})"),
            "costs.json: late\\x0acy: the field is given twice; leave one of them out");
  EXPECT_NE(refusal("{\"late\x7f").find("last read: '\"late\\x7f'"), std::string::npos) << refusal("{\"late\x7f");
  EXPECT_LT(refusal("{\"" + std::string(10'000, 'a')).size(), 350U);
}

}  // namespace
}  // namespace chimera

// Layouts on which a run may continue after it has lost ranks.

#include "launch/hosts/run_layout.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Layouts as "D x W, N".
std::vector<std::string> in_words(const RunLayout& now, std::int64_t ranks) {
  std::vector<std::string> words;
  for (const RunLayout& layout : smaller_layouts(now, ranks))
    words.push_back(std::to_string(layout.workers) + " x " + std::to_string(layout.data_parallel) + ", " +
                    std::to_string(layout.micro_batches));
  return words;
}

TEST(SmallerLayoutTest, FewerGroupsComeBeforeFewerWorkers) {
  EXPECT_THAT(in_words({.workers = 2, .data_parallel = 3, .micro_batches = 2, .mini_batch = 24}, 5),
              ElementsAre("2 x 2, 3", "2 x 1, 6", "1 x 3, 2", "1 x 2, 3", "1 x 1, 6"));
}

TEST(SmallerLayoutTest, MicroBatchesAreDealtOutWhole) {
  EXPECT_THAT(in_words({.workers = 2, .data_parallel = 4, .micro_batches = 2, .mini_batch = 8}, 7),
              ElementsAre("2 x 2, 4", "2 x 1, 8", "1 x 4, 2", "1 x 2, 4", "1 x 1, 8"));
}

TEST(SmallerLayoutTest, OnePipelineIsCutIntoFewerStages) {
  EXPECT_THAT(in_words({.workers = 4, .data_parallel = 1, .micro_batches = 4, .mini_batch = 4}, 3),
              ElementsAre("3 x 1, 4", "2 x 1, 4", "1 x 2, 2", "1 x 1, 4"));
  EXPECT_THAT(in_words({.workers = 1, .data_parallel = 1, .micro_batches = 4, .mini_batch = 4}, 1), IsEmpty());
}

TEST(SmallerLayoutTest, LayoutsKeepTheMiniBatchAndFitTheRemainingRanks) {
  const RunLayout now{.workers = 8, .data_parallel = 12, .micro_batches = 10, .mini_batch = 240};
  for (std::int64_t ranks = 1; ranks < now.ranks(); ++ranks) {
    for (const RunLayout& layout : smaller_layouts(now, ranks)) {
      EXPECT_LE(layout.ranks(), ranks);
      EXPECT_EQ(layout.data_parallel * layout.micro_batches, 120);
      EXPECT_EQ(layout.mini_batch, 240);
    }
  }
}

TEST(SmallerLayoutTest, ReadsWhatADryRunPrints) {
  const RunLayout layout{.workers = 2, .data_parallel = 3, .micro_batches = 4, .mini_batch = 24};
  nlohmann::ordered_json output = {{"schedule", "chimera"}, {"fits", true}};
  output.update(layout_json(layout));
  EXPECT_EQ(parse_layout(output.dump()), layout);
  EXPECT_THAT(layout_flags(layout), ElementsAre("--stages", "2", "--data-parallel", "3", "--micro-batches", "4"));
  for (const char* text :
       {"", "{}", "[1]", R"({"workers": 0, "data_parallel": 1, "micro_batches": 1, "mini_batch": 1})",
        R"({"workers": "2", "data_parallel": 1, "micro_batches": 1, "mini_batch": 1})"}) {
    EXPECT_EQ(parse_layout(text), std::nullopt) << text;
  }
}

/// A dry run of two groups of two workers that rejects odd numbers of workers and fewer than `least` micro-batches.
DryRun even_layouts(std::int64_t least) {
  return [least](const std::vector<std::string>& flags) -> std::optional<LayoutReply> {
    RunLayout layout{.workers = 2, .data_parallel = 2, .micro_batches = 4, .mini_batch = 32};
    if (!flags.empty()) {
      layout = {.workers = std::stoll(flags.at(1)),
                .data_parallel = std::stoll(flags.at(3)),
                .micro_batches = std::stoll(flags.at(5)),
                .mini_batch = layout.mini_batch};
    }
    if (layout.workers % 2 != 0) return LayoutReply{.layout = {}, .message = "--stages must be even"};
    if (layout.micro_batches < least) return LayoutReply{.layout = {}, .message = "too few micro-batches"};
    return LayoutReply{.layout = layout, .message = ""};
  };
}

TEST(SmallerLayoutTest, FindsTheFirstThatADryRunAccepts) {
  const auto found = find_smaller_layout(even_layouts(1), 3);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->layout, (RunLayout{.workers = 2, .data_parallel = 1, .micro_batches = 8, .mini_batch = 32}));
}

TEST(SmallerLayoutTest, ReturnsTheReasonIfNoneIsAccepted) {
  const auto none = find_smaller_layout(even_layouts(1), 1);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->layout, std::nullopt);
  EXPECT_EQ(none->message, "--stages must be even");
  const auto rejected = find_smaller_layout(even_layouts(9), 3);
  ASSERT_TRUE(rejected);
  EXPECT_EQ(rejected->layout, std::nullopt);
  EXPECT_EQ(rejected->message, "too few micro-batches") << "the job itself is rejected";
}

TEST(SmallerLayoutTest, RejectsADryRunThatKeepsItsLayout) {
  const LayoutReply fixed{.layout = RunLayout{.workers = 2, .data_parallel = 2, .micro_batches = 4, .mini_batch = 32},
                          .message = ""};
  const auto found = find_smaller_layout([&](const auto&) { return fixed; }, 3);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->layout, std::nullopt);
}

TEST(SmallerLayoutTest, EndsAfterASignal) {
  int runs = 0;
  const auto interrupted = [&](const std::vector<std::string>& flags) {
    ++runs;
    return flags.empty() ? even_layouts(1)(flags) : std::nullopt;
  };
  EXPECT_FALSE(find_smaller_layout(interrupted, 3));
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace chimera

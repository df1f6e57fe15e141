#include "engine/tensor_ranks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "model/layers.h"
#include "model/linear_cross_entropy.h"
#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

RankId id(std::int64_t rank) { return RankId(rank); }

TEST(TensorRanksTest, LanesAreCopiesOfThePipelinesAndWorkersAreNeighbors) {
  const TensorRanks ranks{.pipelines = 2, .ranks = 2};
  EXPECT_EQ(ranks.count(), 4);
  EXPECT_EQ(ranks.rank(id(1), 0), id(2));
  EXPECT_EQ(ranks.in_lane(id(3)), id(1));
  const RankGroups groups = ranks.groups({{id(0), id(1)}, {id(1)}});
  EXPECT_THAT(groups[ranks.group(ParameterGroupId(0), 1).index()], ElementsAre(id(1), id(3)));
  EXPECT_THAT(groups[ranks.group(ParameterGroupId(1), 0).index()], ElementsAre(id(2)));
  EXPECT_THAT(groups[ranks.tensor_group(id(3), 2).index()], ElementsAre(id(2), id(3)));
  EXPECT_THAT(ranks.pairs({{0, 1}}), ElementsAre(RankPair(0, 2), RankPair(1, 3)));
}

TEST(TensorRanksTest, OneRankPerWorkerChangesNothing) {
  const RankGroups groups = {{id(0), id(1)}, {id(1)}};
  EXPECT_EQ((TensorRanks{.pipelines = 2, .ranks = 1}.groups(groups)), groups);
}

/// Runs `act` on `ranks` threads that share layers.
void share(int ranks, const std::function<void(TensorGroup&)>& act) {
  const TensorRanks layout{.pipelines = 1, .ranks = ranks};
  run_rank_threads(ranks, layout.groups({}), [&](RankId rank, Transport& transport) {
    RankTensorGroup group(transport, layout.place(rank), layout.tensor_group(rank, 0));
    act(group);
  });
}

TEST(TensorPartTest, PartsOfEveryCutMakeTheWhole) {
  const at::Tensor whole = at::arange(7 * 12, at::kFloat).sub_(40).view({7, 12});
  whole[3].fill_(-0.0);
  whole[6].fill_(std::numeric_limits<float>::quiet_NaN());
  const auto bits = [](const at::Tensor& values) { return values.view(at::kInt); };
  for (const TensorCut& cut : {TensorCut{0, 1}, TensorCut{1, 1}, TensorCut{1, 3}}) {
    share(4, [&](TensorGroup& group) {
      const at::Tensor part = local_part(whole, cut, group.place());
      EXPECT_TRUE(at::equal(bits(gather_whole(part, cut, {7, 12}, group)), bits(whole)));
    });
  }
  EXPECT_EQ(local_part(whole, {0, 1}, {3, 4}).size(0), 1) << "7 rows are 2, 2, 2 and 1";
}

struct Problem {
  at::Tensor hidden = at::randn({23, 6}, at::kDouble);
  at::Tensor weight = at::randn({11, 6}, at::kDouble);
  at::Tensor bias = at::randn({11}, at::kDouble);
  at::Tensor targets = at::randint(11, {23}, at::kLong);
};

/// Loss, and gradients of hidden, weight and bias.
std::vector<at::Tensor> head_of(const Problem& problem, TensorGroup* group, std::int64_t logits_of_chunk, bool splits) {
  const auto leaf = [&](const at::Tensor& whole, bool is_cut) {
    const at::Tensor own = is_cut && group != nullptr ? local_part(whole, {0, 1}, group->place()) : whole.clone();
    return own.requires_grad_();
  };
  const Linear head{leaf(problem.weight, true), leaf(problem.bias, true)};
  const at::Tensor hidden = leaf(problem.hidden, false);
  VocabularyPart part;
  if (group != nullptr) part = {group, group->place().share_of(11).first, 11};
  const auto queue = c10::make_intrusive<WeightGradients>();
  at::Tensor loss;
  {
    const WeightGradients::Scope scope(queue);
    loss = linear_cross_entropy(enter_split(hidden, group), head, problem.targets, 0.3, logits_of_chunk, part);
  }
  if (splits) queue->defer();
  torch::autograd::backward({loss}, {});
  queue->run();
  std::vector<at::Tensor> results = {loss.detach(), hidden.grad(), head.weight.grad(), head.bias.grad()};
  if (group != nullptr) {
    results[2] = gather_whole(results[2], {0, 1}, {11, 6}, *group);
    results[3] = gather_whole(results[3], {0, 1}, {11}, *group);
  }
  return results;
}

// Tolerance: float64, and other orders of sums over 11 logits.
TEST(VocabularyPartTest, ChunksOfSharedLogitsHaveTheWholeHeadsLossAndGradients) {
  Problem problem;
  problem.targets[0] = problem.targets[22] = chimera::kIgnored;  // not the one of another test
  for (const std::int64_t logits : {1, 8, 1000}) {
    for (const bool splits : {false, true}) {
      const auto expected = head_of(problem, nullptr, logits, splits);
      share(4, [&](TensorGroup& group) {
        const auto shared = head_of(problem, &group, logits, splits);
        for (std::size_t i = 0; i < expected.size(); ++i)
          EXPECT_TRUE(at::allclose(shared[i], expected[i], 1e-13, 1e-14)) << "result " << i << ", chunks of " << logits;
      });
    }
  }
}

// exp(1000) is infinite, and the largest logits are on one rank.
TEST(VocabularyPartTest, LargeLogitsDoNotOverflow) {
  Problem problem;
  problem.weight.narrow(0, 0, 2).mul_(1000);
  const auto expected = head_of(problem, nullptr, 1000, false);
  share(2, [&](TensorGroup& group) {
    const auto shared = head_of(problem, &group, 1000, false);
    EXPECT_TRUE(at::allclose(shared[0], expected[0], 1e-13));
    // Logits near 10^4 are exact to 10^-12, in an order that depends on where the memory lies. A share of the softmax
    // is no better, and the gradient multiplies it by weights of about 1000.
    EXPECT_TRUE(at::allclose(shared[1], expected[1], 1e-13, 1e-9));
  });
}

}  // namespace
}  // namespace chimera

// State from which ranks resume after a loss: the rule, and a model of a job in which any rank may die at any moment.

#include "train/recover/rank_replacement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "core/invariant.h"
#include "train/loop/trainer.h"

namespace chimera {
namespace {

const RankGroups kPairs = {{RankId(0), RankId(2)}, {RankId(0), RankId(1)}, {RankId(1), RankId(2)}};

TEST(SettlementTest, StepWithoutAnyUpdateIsAbandonedByAll) {
  const std::vector<RankState> states = {{true, 6, 7}, {false, 0, 0}, {true, 6, 6}};
  const ResumeState all = agree_on_resume_state(states, kPairs);
  EXPECT_EQ(all.done, 6);
  EXPECT_EQ(all.metrics_source, RankId(0));
  EXPECT_EQ(all.state_sources, (std::vector<RankId>{RankId(0), RankId(0), RankId(2)}));
}

TEST(SettlementTest, StepThatOneRankUpdatedIsUpdatedByAll) {
  const std::vector<RankState> states = {{true, 6, 7}, {true, 7, 8}, {false, 0, 0}};
  const ResumeState all = agree_on_resume_state(states, kPairs);
  EXPECT_EQ(all.done, 7);
  EXPECT_EQ(all.metrics_source, RankId(1));
}

TEST(SettlementTest, ImpossibleStatesAreAnError) {
  const std::vector<RankState> has_not_voted = {{true, 6, 6}, {true, 7, 8}, {false, 0, 0}};
  EXPECT_THROW((void)agree_on_resume_state(has_not_voted, kPairs), Error);
  const std::vector<RankState> is_two_behind = {{true, 5, 7}, {true, 7, 8}, {false, 0, 0}};
  EXPECT_THROW((void)agree_on_resume_state(is_two_behind, kPairs), Error);
  const std::vector<RankState> lacks_the_copy = {{true, 6, 6, {1}}, {false, 0, 0}, {true, 6, 6}};
  EXPECT_THROW((void)agree_on_resume_state(lacks_the_copy, kPairs), Error);
  const std::vector<RankState> has_no_copy = {{true, 6, 6}, {false, 0, 0}, {false, 0, 0}};
  EXPECT_THROW((void)agree_on_resume_state(has_no_copy, kPairs), Error);
}

TEST(StepPositionTest, AStepIsUpdatedOnceAndClosedBeforeTheNextBegins) {
  StepPosition steps(/*first=*/4);
  EXPECT_EQ(steps.done(), 4);
  EXPECT_THROW(steps.close(), InternalError) << "it is not updated";
  steps.begin(5);
  steps.note_update();
  EXPECT_EQ(steps.done(), 5);
  EXPECT_FALSE(steps.is_closed());
  EXPECT_THROW(steps.note_update(), InternalError);
  EXPECT_THROW(steps.begin(6), InternalError);
  steps.close();
  EXPECT_TRUE(steps.is_closed());
}

TEST(StepPositionTest, AResumedLoopClosesItsLastStepAgain) {
  StepPosition steps(/*first=*/0);
  steps.resume(/*first=*/4, /*done=*/6);
  EXPECT_EQ(steps.done(), 6);
  EXPECT_FALSE(steps.is_closed());
  steps.resume(/*first=*/4, /*done=*/4);
  EXPECT_TRUE(steps.is_closed()) << "step 4 is of an earlier run";
  EXPECT_EQ(steps.step(), 5);
}

/// A job of three ranks; every two share a stage. A rank votes once it and the ranks that share its stages have
/// computed their part of a step. When all have voted, rank 0 has the sum: it updates its weights and notifies the
/// others one by one, and each updates when it is notified. After a loss the ranks call agree_on_resume_state(): ranks
/// that lag behind update, then ranks without weights receive them. Any ranks may die at any moment, even new ones.
struct Model {
  enum class At : std::uint8_t { Computes, HasComputed, HasVoted };
  struct Rank {
    RankState state;
    At at = At::Computes;
    bool is_settled = true;    ///< it has done what agree_on_resume_state() requires
    bool is_told = false;      ///< the notification has been sent
    std::int64_t content = 0;  ///< number of updates in its weights
    friend bool operator<(const Rank& a, const Rank& b) { return a.key() < b.key(); }
    [[nodiscard]] std::vector<std::int64_t> key() const {
      return {state.has_weights ? 1 : 0,
              state.done,
              state.gradients_complete_step,
              static_cast<std::int64_t>(at),
              is_settled ? 1 : 0,
              is_told ? 1 : 0,
              content};
    }
  };
  std::vector<Rank> ranks = std::vector<Rank>(3);
  int losses = 0;
  friend bool operator<(const Model& a, const Model& b) {
    return std::tie(a.ranks, a.losses) < std::tie(b.ranks, b.losses);
  }
};

constexpr std::int64_t kSettlementSteps = 3;
constexpr int kMaxLosses = 2;

/// Visits each reachable state once.
class Explorer {
 public:
  void explore(Model model) {
    if (!seen_.insert(model).second) return;
    lose_some(model);
    const bool is_settled = std::ranges::all_of(model.ranks, [](const Model::Rank& rank) { return rank.is_settled; });
    for (std::size_t rank = 0; rank < model.ranks.size(); ++rank) {
      if (is_settled) {
        train(model, rank);
      } else {
        take_over(model, rank);
      }
    }
    if (is_settled)
      finished_ +=
          model.ranks[0].state.done == kSettlementSteps && model.ranks[1].state.done == kSettlementSteps ? 1 : 0;
  }
  [[nodiscard]] std::size_t num_states() const { return seen_.size(); }
  [[nodiscard]] int finished() const { return finished_; }
  [[nodiscard]] int updated_by_others() const { return updated_by_others_; }
  [[nodiscard]] int given_up() const { return given_up_; }

 private:
  static std::vector<RankState> states_of(const Model& model) {
    std::vector<RankState> states;
    for (const Model::Rank& rank : model.ranks) states.push_back(rank.state);
    return states;
  }

  static bool all_at_least(const Model& model, std::size_t rank, Model::At at) {
    for (const auto& group : kPairs) {
      if (std::ranges::find(group, RankId(static_cast<std::int64_t>(rank))) == group.end()) continue;
      for (const RankId other : group) {
        const Model::Rank& peer = model.ranks[other.index()];
        if (peer.state.done == model.ranks[rank].state.done && peer.at < at) return false;
      }
    }
    return true;
  }

  static void update(Model::Rank& rank) {
    ++rank.state.done;
    ++rank.content;
    rank.at = Model::At::Computes;
    rank.is_told = false;
  }

  void train(const Model& model, std::size_t index) {
    Model next = model;
    Model::Rank& rank = next.ranks[index];
    if (rank.is_told) {
      update(rank);
      return explore(next);
    }
    if (rank.state.done == kSettlementSteps) return;
    if (rank.at == Model::At::Computes) {
      rank.at = Model::At::HasComputed;
      return explore(next);
    }
    if (rank.at == Model::At::HasComputed && all_at_least(model, index, Model::At::HasComputed)) {
      rank.at = Model::At::HasVoted;
      rank.state.gradients_complete_step = rank.state.done + 1;
      return explore(next);
    }
    const bool all_voted = std::ranges::all_of(model.ranks, [&](const Model::Rank& other) {
      return other.at == Model::At::HasVoted && other.state.done == rank.state.done;
    });
    if (index != 0 || !all_voted) return;
    update(rank);
    for (std::size_t other = 1; other < next.ranks.size(); ++other) next.ranks[other].is_told = true;
    explore(next);
  }

  /// In a recovery each rank follows agree_on_resume_state(): ranks that lag behind update, then weights are
  /// transferred.
  void take_over(const Model& model, std::size_t index) {
    const ResumeState all = agree_on_resume_state(states_of(model), kPairs);
    Model next = model;
    Model::Rank& rank = next.ranks[index];
    if (rank.is_settled) return;
    if (!rank.state.has_weights) {
      for (std::size_t group = 0; group < kPairs.size(); ++group) {
        const bool holds = std::ranges::count(kPairs[group], RankId(static_cast<std::int64_t>(index))) > 0;
        const Model::Rank& giver = model.ranks[all.state_sources[group].index()];
        if (holds && !giver.is_settled) return;  // the sender updates before it sends
        if (holds) rank.content = giver.content;
      }
      rank.state = {true, all.done, 0};
    } else if (rank.state.done < all.done) {
      ASSERT_EQ(rank.state.gradients_complete_step, all.done) << "it has not all gradients of the step";
      ++rank.state.done;
      ++rank.content;
      ++updated_by_others_;
    }
    rank.is_settled = true;
    ASSERT_EQ(rank.content, all.done) << "a step is updated by some and not by others, or twice";
    explore(next);
  }

  /// Any ranks die, as long as a copy of each stage remains. The others abandon the step and all its messages.
  void lose_some(const Model& model) {
    if (model.losses == kMaxLosses) return;
    for (unsigned dead = 1; dead < 8; ++dead) {
      Model next = model;
      ++next.losses;
      std::int64_t furthest = 0;
      std::int64_t before = 0;
      for (std::size_t rank = 0; rank < next.ranks.size(); ++rank) {
        Model::Rank& each = next.ranks[rank];
        if ((dead >> rank & 1U) != 0) each.state = {false, 0, 0};
        if ((dead >> rank & 1U) != 0) each.content = -1;
        each.at = Model::At::Computes;
        each.is_told = false;
        each.is_settled = false;
        if (each.state.has_weights) furthest = std::max(furthest, each.state.done);
        if (model.ranks[rank].state.has_weights) before = std::max(before, model.ranks[rank].state.done);
      }
      const bool has_copies = std::ranges::all_of(kPairs, [&](const auto& group) {
        return std::ranges::any_of(group, [&](RankId rank) { return next.ranks[rank.index()].state.has_weights; });
      });
      if (!has_copies) continue;
      const ResumeState all = agree_on_resume_state(states_of(next), kPairs);
      ASSERT_EQ(all.done, furthest) << "a step that was done is lost";
      if (furthest < before) ++given_up_;
      explore(next);
    }
  }

  std::set<Model> seen_;
  int finished_ = 0;
  int updated_by_others_ = 0;
  int given_up_ = 0;
};

TEST(SettlementTest, AfterAnyDeathsAStepIsUpdatedByAllOrByNone) {
  Explorer explorer;
  explorer.explore(Model{});
  EXPECT_GT(explorer.num_states(), 1000U);
  EXPECT_GT(explorer.finished(), 0);
  EXPECT_GT(explorer.updated_by_others(), 0) << "a rank made an update of which only others had heard";
  EXPECT_GT(explorer.given_up(), 0) << "rank 0 died before anyone heard of its update";
}

}  // namespace
}  // namespace chimera

#include "train/recover/rank_replacement.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "core/mapped.h"
#include "runtime/gather.h"

namespace chimera {
namespace {

/// Returns the rank with weights and the most steps; the first of several.
RankId furthest(std::span<const RankState> states) {
  const auto steps = [](const RankState& state) { return state.has_weights ? state.done : -1; };
  return RankId(std::ranges::max_element(states, {}, steps) - states.begin());
}

/// Returns [rank]. All ranks call it.
std::vector<RankState> gather_states(const RankState& own, const RankContext& self) {
  std::vector<double> packed = {own.has_weights ? 1.0 : 0.0, static_cast<double>(own.done),
                                static_cast<double>(own.gradients_complete_step)};
  for (const std::size_t group : own.lacking) packed.push_back(static_cast<double>(group));
  return mapped(gather(packed, self.world_rank, self.job.num_ranks(), self.transport), [](const auto& numbers) {
    RankState state{.has_weights = numbers[0] > 0,
                    .done = static_cast<std::int64_t>(numbers[1]),
                    .gradients_complete_step = static_cast<std::int64_t>(numbers[2])};
    for (std::size_t i = 3; i < numbers.size(); ++i) state.lacking.insert(static_cast<std::size_t>(numbers[i]));
    return state;
  });
}

}  // namespace

ResumeState agree_on_resume_state(std::span<const RankState> states, const RankGroups& groups, std::size_t lanes) {
  ResumeState all{.done = 0, .metrics_source = furthest(states), .state_sources = {}};
  all.done = states[all.metrics_source.index()].done;
  // A rank that is one step behind can make the missing update if it has all gradients of that step. Two steps behind,
  // the update in between is lost.
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    const RankState& state = states[rank];
    if (!state.has_weights || state.done == all.done) continue;
    if (state.done + 1 != all.done || state.gradients_complete_step != all.done) {
      throw Error(fmt::format("rank {} has finished step {} and cannot run step {}, but rank {} has finished it", rank,
                              state.done, all.done, all.metrics_source.value()));
    }
  }
  for (std::size_t group = 0; group < groups.size(); ++group) {
    // Any holder will do: after the missing updates, all copies of a group are equal.
    const auto source =
        std::ranges::find_if(groups[group], [&](RankId rank) { return states[rank.index()].has(group / lanes); });
    if (source == groups[group].end()) throw Error(fmt::format("no rank is left that holds stage {}", group / lanes));
    all.state_sources.push_back(*source);
  }
  return all;
}

ResumeState RankReplacement::agree(std::int64_t done) {
  RankState own{.has_weights = model_.has_weights(), .done = done, .gradients_complete_step = gradients_complete_step_};
  for (const ParameterGroupId group : model_.lacking()) own.lacking.insert(group.index());
  states_ = gather_states(own, self_);
  const JobShape& job = self_.job;
  return agree_on_resume_state(states_, job.ranks().in_lanes(job.run.rank_groups()),
                               static_cast<std::size_t>(job.tensor_parallel));
}

void RankReplacement::share(LoopState& state, RankId source) const {
  StepMetrics& last = state.last;
  LossWatch& watch = last.loss_watch;
  // An optional number travels as a plain one; 0 ranks cannot be.
  std::int64_t workers = last.workers.value_or(0);
  const auto shared =
      std::tie(last.loss, last.gradient_norm, last.learning_rate, last.step_seconds, last.tokens_per_second,
               last.peak_memory_bytes, watch.mean, watch.distance, watch.variance, last.step, last.tokens, last.skipped,
               last.updates, watch.losses, state.skipped_in_row, state.first_step, state.plans.saved, workers,
               last.is_skipped, state.plans.is_due, state.plans.is_stopping);
  std::vector<double> numbers;
  std::apply([&](auto&... value) { numbers = {static_cast<double>(value)...}; }, shared);
  // Ranks without the numbers add zeros, so the sum is a broadcast.
  if (self_.world_rank != source) std::ranges::fill(numbers, 0);
  self_.transport.all_sum(numbers);
  if (self_.world_rank != source) last = {};  // Forgets what is not shared, such as a validation loss
  auto number = numbers.begin();
  const auto read = [&](auto& value) { value = static_cast<std::decay_t<decltype(value)>>(*number++); };
  std::apply([&](auto&... value) { (read(value), ...); }, shared);
  if (workers > 0) last.workers = workers;
}

void RankReplacement::send_state(const ResumeState& resume, std::int64_t updates) {
  const JobShape& job = self_.job;
  const auto has = [&](RankId rank, std::size_t group) { return states_[rank.index()].has(group); };
  const auto send = [&](std::size_t group, RankId source, const std::vector<RankId>& holders,
                        std::optional<std::size_t> shard = {}) {
    for (const RankId rank : holders) {
      if (has(rank, group)) continue;
      model_.transfer_state(ParameterGroupId(static_cast<std::int64_t>(group)), source, rank, resume.done, shard);
    }
  };
  const std::vector<RankGroups> shards = job.has_second_shards ? job.shards() : std::vector<RankGroups>();
  for (std::size_t group = 0; group < shards.size(); ++group) {
    for (std::size_t shard = 0; shard < shards[group].size(); ++shard) {
      const std::vector<RankId>& holders = shards[group][shard];
      const auto source = std::ranges::find_if(holders, [&](RankId rank) { return has(rank, group); });
      if (source == holders.end()) throw Error(fmt::format("no rank is left that holds a shard of stage {}", group));
      send(group, *source, holders, shard);
    }
  }
  const RankGroups groups = job.has_second_shards ? RankGroups() : job.ranks().in_lanes(job.run.rank_groups());
  for (std::size_t group = 0; group < groups.size(); ++group)
    send(group / static_cast<std::size_t>(job.tensor_parallel), resume.state_sources[group], groups[group]);
  self_.transport.confirm();
  if (!model_.lacking().empty()) model_.note_received(updates);
}

}  // namespace chimera

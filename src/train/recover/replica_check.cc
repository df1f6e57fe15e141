#include "train/recover/replica_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/console.h"
#include "core/mapped.h"
#include "train/recover/final_error.h"
#include "train/setup/device.h"

namespace chimera {
namespace {

using Halves = std::pair<double, double>;  // hash_halves()

/// Returns every stage that several ranks hold. In asynchronous schedules, replicas are the same workers of different
/// groups, because the pipelines of a bidirectional schedule update their weights at different times. With tensor
/// parallelism, each t has copies of its own, and the ranks of a worker hold some parameters in full.
std::vector<StageReplicas> stage_copies(const JobShape& job, bool on_gpus) {
  std::vector<StageReplicas> all;
  const auto add = [&](ParameterGroupId group, const std::vector<RankId>& ranks) {
    // Kernels of GPUs may add in any order.
    const bool has_parts = job.tensor_parallel > 1 && !on_gpus;
    for (std::size_t i = 0; has_parts && i < ranks.size(); ++i) {
      StageReplicas parts{.group = group, .ranks = {}, .are_parts = true};
      for (const auto& lane : job.ranks().in_lanes({{ranks[i]}})) parts.ranks.push_back(lane.front());
      all.push_back(std::move(parts));
    }
    if (ranks.size() == 1) return;
    for (std::vector<RankId>& copies : job.ranks().in_lanes({ranks})) all.push_back({group, std::move(copies), false});
  };
  const auto groups = job.run.worker_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const ParameterGroupId group(static_cast<std::int64_t>(g));
    // After an update in a synchronous schedule, all holders of a stage are equal.
    if (!job.run.schedule.updates) {
      add(group, job.run.rank_groups()[g]);
      continue;
    }
    for (const WorkerId worker : groups[g]) {
      std::vector<RankId> ranks;
      for (std::int64_t w = 0; w < job.run.ranks.data_parallel; ++w)
        ranks.push_back(job.run.ranks.rank({GroupId(w), worker}));
      add(group, ranks);
    }
  }
  return all;
}

/// The largest set of equal replicas is right; the first one in a tie.
DeviatingStage stage_of(const StageReplicas& copies, const std::vector<Halves>& hashes) {
  const auto count = [&](const Halves& hash) { return std::ranges::count(hashes, hash); };
  // Quadratic, but a stage has few copies. max_element() returns the first of several largest.
  const auto right = std::ranges::max_element(hashes, {}, count);
  DeviatingStage stage{.copies = copies,
                       .deviating = {},
                       .correct = copies.ranks[static_cast<std::size_t>(right - hashes.begin())],
                       .has_majority = 2 * count(*right) > std::ssize(hashes)};
  for (std::size_t i = 0; i < hashes.size(); ++i)
    if (hashes[i] != *right) stage.deviating.push_back(copies.ranks[i]);
  return stage;
}

std::string numbers(const JobShape& job, const std::vector<RankId>& ranks) {
  const auto launched = mapped(ranks, [&](RankId rank) { return job.launched_rank(rank).value(); });
  return fmt::format("{}", fmt::join(launched, ", "));
}

/// Takes a small all-reduce. All ranks call it and get the same result. `own` holds all stages of `copies` on this
/// rank.
std::vector<DeviatingStage> differing_stages(const std::vector<StageReplicas>& copies, const StateHashes& own,
                                             RankId rank, Transport& transport) {
  // Each rank fills in its own hashes; a sum with zeros is exact for halves of 32 bits.
  std::vector<double> numbers;  // [copies][rank], two halves each
  for (const StageReplicas& stage : copies) {
    for (const RankId member : stage.ranks) {
      const auto [high, low] = hash_halves(member == rank ? own.at({stage.group, stage.are_parts}) : 0);
      numbers.insert(numbers.end(), {high, low});
    }
  }
  if (numbers.empty()) return {};
  transport.all_sum(numbers);
  std::vector<DeviatingStage> differing;
  auto number = numbers.begin();
  for (const StageReplicas& stage : copies) {
    std::vector<Halves> hashes;
    for (std::size_t i = 0; i < stage.ranks.size(); ++i, number += 2) hashes.emplace_back(number[0], number[1]);
    if (DeviatingStage found = stage_of(stage, hashes); !found.deviating.empty()) differing.push_back(std::move(found));
  }
  return differing;
}

/// Returns one line about a difference after `step` (from 1).
std::string describe(const JobShape& job, const DeviatingStage& stage, std::int64_t step) {
  const std::string which = stage.has_majority ? fmt::format("and the copy of rank {} is not equal to the others",
                                                             numbers(job, stage.deviating))
                                               : "and no majority shows the right copy";
  const char* what = stage.copies.are_parts ? "copies of the norms and biases" : "copies";
  return fmt::format(
      "the {} of stage {} on ranks {} differ after step {}, {}: memory, a processor or a network changed bits; test "
      "the machine, and train again",
      what, stage.copies.group.value(), numbers(job, stage.copies.ranks), step, which);
}

}  // namespace

ReplicaCheck::ReplicaCheck(const RankContext& self, const TrainedModel& model, DeviceProgress& progress)
    : self_(self), model_(model), progress_(progress), copies_(stage_copies(self.job, uses_gpu(self.job.options))) {}

StateHashes ReplicaCheck::hash_state() {
  const HashHooks hooks{.after_tensor = [&] { progress_.note_more(); }, .before_wait = [&] { progress_.catch_up(); }};
  StateHashes hashes;
  for (const auto& [group, ranks, are_parts] : copies_) {
    if (std::ranges::find(ranks, self_.world_rank) == ranks.end()) continue;
    hashes[{group, are_parts}] = hash_bytes(are_parts ? model_.whole_state_of(group) : model_.state_of(group), hooks);
  }
  return hashes;
}

void ReplicaCheck::compare(std::int64_t step) {
  // Hashes are compared instead of weights: 16 bytes a stage travel.
  hashes_ = hash_state();
  const auto differing = differing_stages(copies_, hashes_, self_.world_rank, self_.transport);
  if (differing.empty()) return;
  const bool repairs = self_.job.options.recovery.different_copies == DifferentCopies::Repair &&
                       std::ranges::all_of(differing, [](const DeviatingStage& stage) {
                         return stage.has_majority && !stage.copies.are_parts;  // Ranks also hold other parts
                       });
  if (!repairs) {
    const DeviatingStage& first = differing.front();
    // A deviating rank reports the reason, so that the launcher names it as the culprit.
    fail_on_all_ranks(describe(self_.job, first, step), self_.world_rank == first.deviating.front(), self_.transport);
  }
  for (const DeviatingStage& stage : differing) repair(stage, step);
  model_.update_copies();
  hashes_ = hash_state();
}

void ReplicaCheck::ensure_hashes(std::int64_t step) {
  if (self_.job.options.recovery.different_copies == DifferentCopies::Repair && hashes_.empty()) compare(step);
}

void ReplicaCheck::repair(const DeviatingStage& stage, std::int64_t step) {
  for (const RankId odd : stage.deviating) {
    model_.transfer_state(stage.copies.group, stage.correct, odd, step);
    if (self_.world_rank != odd) continue;
    print_message(
        "rank {0}: its copy of stage {1} differed from the majority after step {2}; the copy of "
        "rank {3} has replaced it; test memory and processors of the machine of rank {0}",
        self_.job.launched_rank(odd).value(), stage.copies.group.value(), step,
        self_.job.launched_rank(stage.correct).value());
  }
}

void ReplicaCheck::require_unchanged() {
  if (hashes_.empty() || hash_state() == hashes_) return;
  throw Error(
      "weights or optimizer state of this rank changed since the last update: memory or a processor changes bits");
}

}  // namespace chimera

#include "train/recover/replica_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/console.h"
#include "core/error.h"
#include "train/recover/final_error.h"

namespace chimera {

ReplicaCheck::ReplicaCheck(const RankContext& self, const TrainedModel& model, DeviceProgress& progress)
    : self_(self), model_(model), progress_(progress), copies_(stage_copies(self.job)) {}

StateHashes ReplicaCheck::hash_state() {
  const HashHooks hooks{.after_tensor = [&] { progress_.note_more(); }, .before_wait = [&] { progress_.catch_up(); }};
  StateHashes hashes;
  for (const auto& [group, ranks] : copies_) {
    if (std::ranges::find(ranks, self_.rank) == ranks.end()) continue;
    hashes[group] = hash_bytes(model_.state_of(group), hooks);
  }
  return hashes;
}

void ReplicaCheck::compare(std::int64_t step) {
  hashes_ = hash_state();
  const auto differing = differing_stages(copies_, hashes_, self_.rank, self_.transport);
  if (differing.empty()) return;
  const bool repairs = self_.job.options.different_copies == DifferentCopies::Repair &&
                       std::ranges::all_of(differing, &DeviatingStage::has_majority);
  if (!repairs) {
    const DeviatingStage& first = differing.front();
    end_everywhere(describe(first, step), self_.rank == first.odd.front(), self_.transport);
  }
  for (const DeviatingStage& stage : differing) repair(stage, step);
  model_.update_copies();
  hashes_ = hash_state();
}

void ReplicaCheck::ensure_hashes(std::int64_t step) {
  if (self_.job.options.different_copies == DifferentCopies::Repair && hashes_.empty()) compare(step);
}

void ReplicaCheck::repair(const DeviatingStage& stage, std::int64_t step) {
  for (const RankId odd : stage.odd) {
    model_.transfer_state(stage.copies.group, stage.right, odd, step);
    if (self_.rank != odd) continue;
    messages().write(
        fmt::format("chimera: rank {0}: its copy of stage {1} differed from the majority after step {2}; the copy of "
                    "rank {3} has replaced it; test memory and processors of the machine of rank {0}\n",
                    odd.value(), stage.copies.group.value(), step, stage.right.value()));
  }
}

void ReplicaCheck::require_unchanged() {
  if (hashes_.empty() || hash_state() == hashes_) return;
  throw Error(
      "weights or optimizer state of this rank changed since the last update: memory or a processor changes bits");
}

}  // namespace chimera

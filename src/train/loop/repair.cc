// How the copies of a stage are kept equal: that part of the trainer.

#include <fmt/format.h>

#include <algorithm>

#include "core/console.h"
#include "core/error.h"
#include "core/fault_point.h"
#include "train/loop/trainer.h"
#include "train/recover/copies.h"
#include "train/recover/final_error.h"

namespace chimera {
namespace {

/// Rehearses a fault: flips one of the leading bits of a tensor's first number.
void flip_a_bit(const at::Tensor& value) {
  static_cast<std::uint8_t*>(value.data_ptr())[value.element_size() - 2] ^= 1U;
}

}  // namespace

/// Passes a fault point. `tensor`: of state_of() the first group here, 0 for a weight, 1 for what is remembered of it.
void Trainer::rehearse_flip(std::string_view point, std::size_t tensor) {
  if (fault_point(point)) flip_a_bit(state_of(trained_.begin()->first).at(tensor));
}

/// Of all stages here that others hold too.
StateHashes Trainer::hash_copies() const {
  StateHashes hashes;
  for (const StageCopies& stage : copies_) {
    const auto& ranks = stage.ranks;
    if (std::ranges::find(ranks, rank_) != ranks.end()) hashes[stage.group] = hash_bytes(state_of(stage.group));
  }
  return hashes;
}

void Trainer::compare_copies() {
  hashes_ = hash_copies();
  const auto differing = differing_stages(copies_, hashes_, rank_, transport_);
  if (differing.empty()) return;
  const bool repairs = job_.options.different_copies == DifferentCopies::Repair &&
                       std::ranges::all_of(differing, &DifferingStage::has_majority);
  if (!repairs) {
    const DifferingStage& first = differing.front();
    end_everywhere(describe(first, done_), rank_ == first.odd.front(), transport_);
  }
  for (const DifferingStage& stage : differing) repair(stage);
  for (const auto& [id, stage] : stages_) stage->update_copies();
  hashes_ = hash_copies();
}

/// Those that are unlike most take weights and optimizer state from one of these.
void Trainer::repair(const DifferingStage& stage) {
  for (const RankId odd : stage.odd) {
    give_or_take(stage.copies.group, stage.right, odd);
    if (rank_ != odd) continue;
    messages().write(fmt::format(
        "chimera: rank {0}: its copy of stage {1} differed from most after step {2}, and is now that of rank {3}; test "
        "memory and processors of the machine of rank {0}\n",
        odd.value(), stage.copies.group.value(), done_, stage.right.value()));
  }
}

/// Before a rank says that it has all gradients of a step, which are of no use where its own weights changed meanwhile,
/// and before it gives its weights to another one.
void Trainer::require_unchanged() const {
  if (hashes_.empty() || hash_copies() == hashes_) return;
  throw Error(
      "weights or optimizer state of this rank changed since the last update: memory or a processor changes bits");
}

}  // namespace chimera

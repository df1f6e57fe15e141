#pragma once
// Where ranks go on that have lost others in the middle of a step: all with the same one.

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/rank_layout.h"

namespace chimera {

/// What a rank has when it has left a step. A rank updates its weights once it has the sum of all ranks' losses and
/// norms, and hands in its part of that sum once it has all gradients of its stages: that is its vote.
struct RankState {
  bool has_weights = true;     ///< else it takes the place of a rank that was lost
  std::int64_t done = 0;       ///< steps whose sum it has, and whose update it has made
  std::int64_t voted_for = 0;  ///< the step, from 1, whose gradients it has last had all of
};

/// What they make of it.
struct Settlement {
  std::int64_t done = 0;       ///< steps that all ranks shall have done: if one of them has made an update, all make it
  RankId teller{0};            ///< has done them: tells the others loss and norm of the last one
  std::vector<RankId> givers;  ///< [parameter group]: gives weights and optimizer state to those that have none
};

/// `states`: [rank]. A rank that has weights is never further than one step ahead of the others; those that are behind
/// have all gradients that the update takes. Throws Error where it is otherwise, or no rank of a group has weights.
[[nodiscard]] Settlement settle(std::span<const RankState> states, const RankGroups& groups);

}  // namespace chimera

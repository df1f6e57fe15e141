#pragma once
// What ops, messages and sums cost each other, measured by running them beside each other.

#include <array>
#include <functional>

#include "plan/machine.h"
#include "profile/lockstep.h"
#include "simulate/contention.h"

namespace chimera {

/// Ops of a pipeline: the same work every time.
using OpWork = std::function<void()>;

/// When a sum and the ops beside it ended, since both began; and what each takes alone.
struct TimesBeside {
  double ops_alone = 0;
  double sum_alone = 0;
  double ops = 0;
  double sum = 0;
};
/// By how much they slowed each other down while both ran: `ops_by_sums` and `sums_by_ops`, none below 0. Whichever
/// ended first was slowed down all its time; the other one went on alone.
[[nodiscard]] Contention slowed_down(const TimesBeside& times);

/// Ranks 0 and 1 sum gradients while they compute, rounds of which take turns with the same alone; further ranks that
/// compute do so beside. Of each share the median over the rounds, averaged over both ranks. The sum takes at
/// least as long as the ops, as far as 256 MiB do; `sums` says how long it takes. `group`: that of ranks 0 and 1. All
/// ranks call it, and all get the result; `transfers` is 0.
[[nodiscard]] Contention measure_sums_beside_ops(Lockstep& ranks, ParameterGroupId group, const LinkTimes& sums,
                                                 const OpWork& compute, double seconds);

/// What a message of L bytes takes of the processor at each of its ends, alpha + beta L: CPU time of ranks 0 and 1 that
/// exchange messages of a 256th of `largest` bytes up to all of it while they compute, less that of computing alone,
/// for each message sent or received. Medians; all ranks call it, and all get the result.
[[nodiscard]] LinkTimes measure_message_copies(Lockstep& ranks, const OpWork& compute, double seconds,
                                               std::int64_t largest = 1 << 20);

/// By what share messages of 4 MiB from rank 0 to ranks 1 and 2 at once take longer than one to rank 1 alone; none
/// below 0. The median over rounds in which both take turns. Three ranks or more call it, and all get the result.
[[nodiscard]] double measure_transfers_at_once(Lockstep& ranks, double seconds);

/// By what share a sum takes less while the next one is under way too (Contention::sums_overlap): two of
/// ranks 0 and 1, in two groups of theirs, begun at once, beside one alone. At most 0.9. The median over rounds in
/// which both take turns; all ranks call it, with as many bytes, and all get the result.
[[nodiscard]] double measure_sums_overlap(Lockstep& ranks, const std::array<ParameterGroupId, 2>& groups,
                                          double seconds, std::int64_t bytes = 16 << 20);

/// By what share ops take longer, in CPU time, where ranks 0 and 1 take turns on one core instead of having one each;
/// none below 0. The median over rounds in which both take turns; 0 where a core cannot be chosen. All ranks call it,
/// and all get the result.
[[nodiscard]] double measure_core_sharing(Lockstep& ranks, const OpWork& compute, double seconds);

}  // namespace chimera

#pragma once

// Measures how much ops, messages and all-reduces ("sums") slow each other down when they overlap, for `chimera
// profile`. A slowdown is relative and at least 0: 0.5 means that the work takes 1.5 times as long. Each function
// repeats rounds for about `seconds`. A round runs the work alone, and then beside other work; the result is a median
// over the rounds. All functions are collective and return the same result on all ranks. The results go to
// MachineProfile::contention, message_copy and core_sharing (plan/machine.h). A Lockstep (lockstep.h) lets the ranks
// start a measurement together.

#include <functional>

#include "plan/machine.h"
#include "profile/lockstep.h"
#include "simulate/contention.h"

namespace chimera {

/// Function that runs some ops of a stage; each call does the same work.
using OpWork = std::function<void()>;

/// Seconds of ops and an all-reduce: alone, and started together.
struct OverlapTimes {
  double ops_alone = 0;  // the ops alone
  double sum_alone = 0;  // the all-reduce alone
  double ops = 0;        // the ops, if both start together
  double sum = 0;        // the all-reduce, if both start together
};
/// Computes Contention::ops_by_sums and sums_by_ops (simulate/contention.h). Both describe only the time in which ops
/// and all-reduce overlap.
[[nodiscard]] Contention slowdown_of(const OverlapTimes& times);

/// Measures an all-reduce of ranks 0 and 1 (`group`) while all computing ranks run `compute`. Returns ops_by_sums and
/// sums_by_ops, averaged over ranks 0 and 1; the other fields are 0. From `sums`, the measured times of all-reduces,
/// the function chooses a size at which the all-reduce takes longer than the ops, at most 256 MiB.
[[nodiscard]] Contention measure_all_reduce_overlap(Lockstep& ranks, ParameterGroupId group, const LinkTimes& sums,
                                                    const OpWork& compute, double seconds);

/// Returns MachineProfile::message_copy: the CPU time alpha + beta L that a message of L bytes costs its sender, and
/// again its receiver. Ranks 0 and 1 exchange messages of `largest` / 256 to `largest` bytes while they compute.
[[nodiscard]] LinkTimes measure_message_copies(Lockstep& ranks, const OpWork& compute, double seconds,
                                               std::int64_t largest = 1 << 20);

/// Returns Contention::transfers: the slowdown of two simultaneous messages of 4 MiB from rank 0 to ranks 1 and 2,
/// relative to a single message to rank 1. Requires three ranks.
[[nodiscard]] double measure_transfers_at_once(Lockstep& ranks, double seconds);

/// Returns Contention::sums_overlap, at most 0.9. Two all-reduces of `bytes`, in the two `groups`, run at the same
/// time; the result is the time that this saves, as a fraction of the time of one all-reduce.
[[nodiscard]] double measure_sums_overlap(Lockstep& ranks, const std::array<ParameterGroupId, 2>& groups,
                                          double seconds, std::int64_t bytes = 16 << 20);

/// Returns Contention::idle_gain, at most 0.9: the fraction of time that ops save if the other cores are idle. First
/// all computing ranks run `compute` at the same time, then ranks 0 and 1 one after the other. `threads` is the number
/// of intra-op threads of a rank; with several, wall-clock time is measured in place of CPU time.
[[nodiscard]] double measure_idle_gain(Lockstep& ranks, const OpWork& compute, std::int64_t threads, double seconds);

/// Returns MachineProfile::core_sharing: the slowdown of ops, in CPU time, if ranks 0 and 1 run on the same core.
/// Returns 0 if the system does not let the ranks choose a core.
[[nodiscard]] double measure_core_sharing(Lockstep& ranks, const OpWork& compute, double seconds);

}  // namespace chimera

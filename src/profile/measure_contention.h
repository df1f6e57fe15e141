#pragma once

// Slowdowns of ops, messages and all-reduces that overlap, relative and at least 0. Each measurement alternates the
// work alone with the work beside other work, in rounds, and takes medians. All functions are collective and give
// all ranks the result. They fill MachineProfile::contention, message_copy and core_sharing.

#include <array>
#include <functional>

#include "plan/machine.h"
#include "profile/lockstep.h"
#include "simulate/contention.h"

namespace chimera {

/// Ops of a pipeline: equal work in every call.
using OpWork = std::function<void()>;

/// Seconds of ops and an all-reduce: alone, and started together.
struct OverlapTimes {
  double ops_alone = 0;
  double sum_alone = 0;
  double ops = 0;
  double sum = 0;
};
/// Returns `ops_by_sums` and `sums_by_ops` during the overlap.
[[nodiscard]] Contention slowdown_of(const OverlapTimes& times);

/// Measures all-reduces of ranks 0 and 1 (`group`) and ops of all computing ranks, averaged over ranks 0 and 1;
/// `transfers` is 0. The all-reduce outlasts the ops, up to 256 MiB; `sums` predicts its time.
[[nodiscard]] Contention measure_all_reduce_overlap(Lockstep& ranks, ParameterGroupId group, const LinkTimes& sums,
                                                    const OpWork& compute, double seconds);

/// Returns the CPU time of a message of L bytes at each end, alpha + beta L. Ranks 0 and 1 exchange messages of
/// `largest` / 256 to `largest` bytes while they compute.
[[nodiscard]] LinkTimes measure_message_copies(Lockstep& ranks, const OpWork& compute, double seconds,
                                               std::int64_t largest = 1 << 20);

/// Returns the slowdown of simultaneous 4 MiB messages from rank 0 to ranks 1 and 2, over a message to rank 1. Requires
/// three ranks.
[[nodiscard]] double measure_transfers_at_once(Lockstep& ranks, double seconds);

/// Returns Contention::sums_overlap, at most 0.9, for two all-reduces of `bytes` at once, in two groups.
[[nodiscard]] double measure_sums_overlap(Lockstep& ranks, const std::array<ParameterGroupId, 2>& groups,
                                          double seconds, std::int64_t bytes = 16 << 20);

/// Returns Contention::idle_gain, at most 0.9: all computing ranks run ops at once, then ranks 0 and 1 in turn.
[[nodiscard]] double measure_idle_gain(Lockstep& ranks, const OpWork& compute, std::int64_t threads, double seconds);

/// Returns the slowdown of ops, in CPU time, if ranks 0 and 1 share a core; 0 if a core cannot be chosen.
[[nodiscard]] double measure_core_sharing(Lockstep& ranks, const OpWork& compute, double seconds);

}  // namespace chimera

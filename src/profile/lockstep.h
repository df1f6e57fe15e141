#pragma once

// Synchronization of the ranks of `chimera profile`. Some measurements keep all cores busy, or send messages between
// two ranks. For these, all ranks must run the same part of the measurement at the same time. All functions of
// src/profile that take a Lockstep are collective: every rank calls them, in the same order.

#include "core/cgroup.h"
#include "core/clock.h"
#include "runtime/tracer.h"
#include "transport/transport.h"

namespace chimera {

/// Indices in profile_groups() of two equal groups of ranks 0 and 1. The second one is for simultaneous all-reduces.
inline const ParameterGroupId kPairGroup(2);
inline const ParameterGroupId kOtherPairGroup(3);

/// Returns the groups of ranks that all-reduce together, which the transport of a profile must have. Groups 0 and 1 are
/// the stages of a pipeline of ranks 0 and 1, with which measure_op_overhead() runs the executor.
[[nodiscard]] inline RankGroups profile_groups() {
  const RankId first(0);
  const RankId second(1);
  return {{first}, {second}, {first, second}, {first, second}};
}

/// Returns the seconds to use as the time of an op. If the worker has one thread and a whole core, this is CPU time,
/// which other programs do not lengthen. Otherwise it is wall-clock time, which includes cgroup throttling.
[[nodiscard]] inline double seconds_of(const Duration& duration, std::int64_t threads) {
  static const bool is_whole = has_whole_core();
  return threads == 1 && is_whole ? duration.cpu_seconds : duration.wall_seconds;
}

/// Barriers and collectives of a rank. All ranks make the same calls in the same order.
class Lockstep {
 public:
  /// `computing` is the number of ranks that compute, ranks 0 .. computing - 1; together they keep all cores busy.
  /// Borrows the transport.
  Lockstep(Transport& transport, int rank, int computing) : transport_(transport), rank_(rank), computing_(computing) {}

  [[nodiscard]] Transport& transport() const { return transport_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int computing() const { return computing_; }
  /// Returns whether this rank is one of the computing ranks.
  [[nodiscard]] bool computes() const { return rank_ < computing_; }

  /// Waits for all ranks.
  void barrier() { (void)broadcast(0); }
  /// Waits for all ranks, and returns the argument of rank 0 on every rank.
  [[nodiscard]] double broadcast(double own) {
    double value = rank_ == 0 ? own : 0;
    transport_.all_sum({&value, 1});
    return value;
  }
  /// Calls `round(i)` on every rank for i = 0, 1, ... until `seconds` have passed on rank 0, but at least 4 times,
  /// because the first call may be a warm-up.
  template <class Round>
  void repeat(double seconds, const Round& round) {
    constexpr std::int64_t kFewestRounds = 4;
    const double deadline = monotonic_seconds() + seconds;
    for (std::int64_t i = 0; broadcast(i < kFewestRounds || monotonic_seconds() < deadline ? 1 : 0) > 0; ++i) round(i);
  }
  /// Replaces each number, on every rank, by its mean over the computing ranks.
  void average(std::span<double> numbers) {
    for (double& number : numbers) number = computes() ? number / computing_ : 0;
    transport_.all_sum(numbers);
  }

 private:
  Transport& transport_;
  int rank_;
  int computing_;
};

}  // namespace chimera

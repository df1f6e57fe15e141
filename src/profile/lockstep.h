#pragma once
// Ranks that measure the same things at the same time.

#include <cstdint>
#include <span>

#include "core/cgroup.h"
#include "core/clock.h"
#include "core/ids.h"
#include "runtime/tracer.h"
#include "transport/transport.h"

namespace chimera {

/// What a duration counts for: CPU time where a worker has one thread and a whole core, which other programs' turns do
/// not lengthen, else time on the clock: it has what its control groups make it wait.
[[nodiscard]] inline double seconds_of(const Duration& duration, std::int64_t threads) {
  static const bool is_whole = has_whole_core();
  return threads == 1 && is_whole ? duration.cpu_seconds : duration.wall_seconds;
}

/// One rank's side. All ranks call the same functions in the same order.
class Lockstep {
 public:
  /// The first `computing` ranks compute; the others keep their cores free. The transport is borrowed.
  Lockstep(Transport& transport, int rank, int computing) : transport_(transport), rank_(rank), computing_(computing) {}

  [[nodiscard]] Transport& transport() const { return transport_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int computing() const { return computing_; }
  [[nodiscard]] bool computes() const { return rank_ < computing_; }

  /// Returns once all ranks are here.
  void meet() { (void)agree(true); }
  /// What rank 0 says.
  [[nodiscard]] bool agree(bool says) {
    double value = rank_ == 0 && says ? 1 : 0;
    transport_.all_sum({&value, 1});
    return value > 0;
  }
  /// Whether to go on after `done` rounds: until rank 0's clock reaches `deadline` (monotonic_seconds()), and for a few
  /// rounds at least.
  [[nodiscard]] bool go_on(std::int64_t done, double deadline) {
    constexpr std::int64_t kFewestRounds = 4;  // the first may warm up
    return agree(done < kFewestRounds || monotonic_seconds() < deadline);
  }
  /// Each number averaged over the ranks that compute; what others give counts for nothing.
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

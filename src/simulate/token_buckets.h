#pragma once

// Bursts of a cloud's network interface: after a pause, the first bytes pass faster than its sustained rate. The clock
// of shared cores (shared_cores.cc) takes the time that a message saves from the bucket of its sender's interface.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace chimera {

/// Token bucket per network interface, in units of time, as in `tc tbf` and clouds. It fills in real time while the
/// interface is idle. A transfer takes tokens and need not wait for that much of its own time.
class TokenBuckets {
 public:
  /// All buckets start full.
  explicit TokenBuckets(std::size_t interfaces) : buckets_(interfaces) {}

  /// Takes tokens for `copies` simultaneous transfers of `time` each, from at most `most`. Returns the time for which
  /// each need not wait.
  double take(std::size_t interface, double now, double time, double most, double copies) {
    Bucket& bucket = buckets_[interface];
    fill(bucket, now);
    bucket.holds = std::min(bucket.holds, most);
    const double each = std::min(bucket.holds / copies, time);
    bucket.holds -= copies * each;
    return each;
  }
  /// Starts a transfer, which waits for its whole time unless take() was called for it.
  void begin(std::size_t interface, double now) {
    fill(buckets_[interface], now);
    ++buckets_[interface].leaving;
  }
  void end(std::size_t interface, double now) {
    --buckets_[interface].leaving;
    buckets_[interface].since = now;
  }
  void empty(std::size_t interface) { buckets_[interface].holds = 0; }

 private:
  struct Bucket {
    double holds = std::numeric_limits<double>::infinity();
    double since = 0;  // start of filling, if idle
    int leaving = 0;
  };
  static void fill(Bucket& bucket, double now) {
    if (bucket.leaving > 0) return;
    bucket.holds += now - bucket.since;
    bucket.since = now;
  }

  std::vector<Bucket> buckets_;  // [interface]
};

}  // namespace chimera

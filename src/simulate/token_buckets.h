#pragma once

// Simulates bursts of a cloud's network interface: after a pause, the first bytes pass faster than the sustained rate,
// as in a token bucket. The event loop of shared_cores.cc calls take() for each message, and subtracts the result from
// the message's time on the link.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace chimera {

/// A token bucket per network interface, as in `tc tbf` and clouds. Tokens are counted in time on the link: a second of
/// idle time adds one second of tokens, and a transfer that takes them is that much shorter.
class TokenBuckets {
 public:
  /// All buckets start full.
  explicit TokenBuckets(std::size_t interfaces) : buckets_(interfaces) {}

  /// Takes tokens at time `now`, for `copies` simultaneous transfers that take `time` each. `most` is the capacity of
  /// the bucket. Returns the time that each transfer saves.
  double take(std::size_t interface, double now, double time, double most, double copies) {
    Bucket& bucket = buckets_[interface];
    fill(bucket, now);
    bucket.holds = std::min(bucket.holds, most);
    const double each = std::min(bucket.holds / copies, time);
    bucket.holds -= copies * each;
    return each;
  }
  /// Called when a transfer starts. The bucket does not fill until end().
  void begin(std::size_t interface, double now) {
    fill(buckets_[interface], now);
    ++buckets_[interface].leaving;
  }
  /// Called when a transfer ends.
  void end(std::size_t interface, double now) {
    --buckets_[interface].leaving;
    buckets_[interface].since = now;
  }
  /// Removes all tokens.
  void empty(std::size_t interface) { buckets_[interface].holds = 0; }

 private:
  struct Bucket {
    double holds = std::numeric_limits<double>::infinity();  // tokens; infinite: full
    double since = 0;                                        // while idle: time up to which it was filled
    int leaving = 0;                                         // number of running transfers
  };
  static void fill(Bucket& bucket, double now) {
    if (bucket.leaving > 0) return;
    bucket.holds += now - bucket.since;
    bucket.since = now;
  }

  std::vector<Bucket> buckets_;  // [interface]
};

}  // namespace chimera

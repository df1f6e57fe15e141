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
/// idle time adds one second of tokens, and a transfer that takes them is that much shorter. Calls for an interface
/// must be in the order of time.
class TokenBuckets {
 public:
  /// All buckets start full.
  explicit TokenBuckets(std::size_t interfaces) : buckets_(interfaces) {}

  /// Takes tokens at time `now`, for `copies` simultaneous transfers that take `time` each, from a bucket that holds
  /// at most `capacity` tokens. Returns the time that each transfer saves.
  double take(std::size_t interface, double now, double time, double capacity, double copies) {
    Bucket& bucket = buckets_[interface];
    fill(bucket, now);
    bucket.tokens = std::min(bucket.tokens, capacity);
    const double each = std::min(bucket.tokens / copies, time);
    bucket.tokens -= copies * each;
    return each;
  }
  /// Called when a transfer starts. The bucket does not fill until end().
  void begin(std::size_t interface, double now) {
    fill(buckets_[interface], now);
    ++buckets_[interface].transfers;
  }
  /// Called when a transfer ends.
  void end(std::size_t interface, double now) {
    --buckets_[interface].transfers;
    buckets_[interface].since = now;
  }
  /// Removes all tokens. Called when an all-reduce starts, because its pieces use up any burst.
  void empty(std::size_t interface) { buckets_[interface].tokens = 0; }

 private:
  struct Bucket {
    double tokens = std::numeric_limits<double>::infinity();  // infinite: full
    double since = 0;                                         // while idle: time up to which it was filled
    int transfers = 0;                                        // that run now
  };
  static void fill(Bucket& bucket, double now) {
    if (bucket.transfers > 0) return;
    bucket.tokens += now - bucket.since;
    bucket.since = now;
  }

  std::vector<Bucket> buckets_;  // [interface]
};

}  // namespace chimera

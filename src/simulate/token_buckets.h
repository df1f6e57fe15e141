#pragma once
// What network interfaces let pass at once before they hold back.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace chimera {

/// A bucket of time for each interface, which fills, as fast as time goes by, while nothing leaves the interface. What
/// leaves takes from it, and need not wait for so much of its own time: a token bucket, as `tc tbf` and clouds have.
class TokenBuckets {
 public:
  /// All full.
  explicit TokenBuckets(std::size_t interfaces) : buckets_(interfaces) {}

  /// Takes for what begins to leave, `copies` times at once, and takes `time` each: at most `most`, all that the bucket
  /// holds. Returns what each of them need not wait for.
  double take(std::size_t interface, double now, double time, double most, double copies) {
    Bucket& bucket = buckets_[interface];
    fill(bucket, now);
    bucket.holds = std::min(bucket.holds, most);
    const double each = std::min(bucket.holds / copies, time);
    bucket.holds -= copies * each;
    return each;
  }
  /// Something begins to leave; it waits for all of its time, unless take() was called for it.
  void begin(std::size_t interface, double now) {
    fill(buckets_[interface], now);
    ++buckets_[interface].leaving;
  }
  void end(std::size_t interface, double now) {
    --buckets_[interface].leaving;
    buckets_[interface].since = now;
  }
  /// Nothing more is in it: what leaves now takes more than it holds.
  void empty(std::size_t interface) { buckets_[interface].holds = 0; }

 private:
  struct Bucket {
    double holds = std::numeric_limits<double>::infinity();
    double since = 0;  // when it began to fill, if nothing leaves
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

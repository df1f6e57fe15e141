#pragma once
// Samples made ahead of their use, on a thread of their own: reading text and masking it costs the compute thread
// nothing.

#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "data/samples.h"

namespace chimera {

/// The samples that one micro-batch takes from its step.
struct BatchPlace {
  std::int64_t step = 0;        // from 0
  std::int64_t first = 0;       // index of its first sample in the step
  std::int64_t size = 1;        // b
  std::int64_t mini_batch = 1;  // samples of the step
  friend auto operator<=>(const BatchPlace&, const BatchPlace&) = default;
};

/// The samples at a place, in order.
[[nodiscard]] std::vector<Sample> samples_at(const Samples& samples, const BatchPlace& place);

/// Makes the samples of places that are announced, and keeps them until they are forgotten, so that several stages may
/// read the same ones: it never holds more than what was announced since. What get() returns depends on the place
/// alone, whoever makes it and when. One thread calls.
class SamplePrefetcher {
 public:
  using Make = std::function<std::vector<Sample>(const BatchPlace&)>;

  /// `make` is called on both threads, at once perhaps. Where no thread can be had, the caller of get() makes all.
  explicit SamplePrefetcher(Make make);
  /// Waits for the samples being made, not for those announced.
  ~SamplePrefetcher();
  SamplePrefetcher(const SamplePrefetcher&) = delete;
  SamplePrefetcher& operator=(const SamplePrefetcher&) = delete;

  /// Makes these, too, in their order, after those announced before.
  void prefetch(const std::vector<BatchPlace>& places);
  /// Those of steps before `step` are not needed any more.
  void forget_before(std::int64_t step);
  /// The samples at `place`: waits until they are made; makes them where they were not announced. Throws what `make`
  /// threw there.
  [[nodiscard]] std::vector<Sample> get(const BatchPlace& place);
  /// Calls of get() that made samples themselves.
  [[nodiscard]] std::int64_t made_late() const { return made_late_; }

 private:
  using Task = std::packaged_task<std::vector<Sample>()>;

  void work();
  std::optional<Task> next_task();

  Make make_;
  std::map<BatchPlace, std::shared_future<std::vector<Sample>>> announced_;  // of the calling thread
  std::int64_t made_late_ = 0;                                               // likewise
  std::mutex mutex_;                                                         // of what follows
  std::condition_variable changed_;
  std::deque<std::pair<BatchPlace, Task>> tasks_;  // that nobody has begun, in the order of their announcement
  bool ends_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace chimera

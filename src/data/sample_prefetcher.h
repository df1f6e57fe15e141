#pragma once
// Samples, or what is made of them, ahead of their use, on a thread of their own: reading text and masking it costs the
// compute thread nothing.

#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/signals.h"
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

/// Makes what belongs to places that are announced, and keeps it until it is forgotten, so that several stages may
/// read the same: it never holds more than what was announced since. What get() returns depends on the place alone,
/// whoever makes it and when. One thread calls.
template <class Made>
class Prefetcher {
 public:
  using Make = std::function<Made(const BatchPlace&)>;

  /// `make` is called on both threads, at once perhaps. Where no thread can be had, the caller of get() makes all.
  explicit Prefetcher(Make make) : make_(std::move(make)) {
    const NoSignals no_signals;
    try {
      thread_ = std::thread([this] { work(); });
    } catch (const std::system_error&) {  // a limit of threads or memory: nothing is made ahead
    }
  }
  /// Waits for what is being made, not for what is announced.
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Makes these, too, in their order, after those announced before.
  void prefetch(const std::vector<BatchPlace>& places) {
    if (!thread_.joinable()) return;
    for (const BatchPlace& place : places) {
      if (announced_.contains(place)) continue;
      Task task([this, place] { return make_(place); });
      announced_.emplace(place, task.get_future().share());
      const std::lock_guard lock(mutex_);
      tasks_.emplace_back(place, std::move(task));
    }
    changed_.notify_one();
  }
  /// What belongs to steps before `step` is not needed any more.
  void forget_before(std::int64_t step) {
    announced_.erase(announced_.begin(), announced_.lower_bound(BatchPlace{.step = step, .first = 0, .size = 0}));
    const std::lock_guard lock(mutex_);
    std::erase_if(tasks_, [step](const auto& task) { return task.first.step < step; });
  }
  /// What belongs to `place`: waits until it is made; makes it where it was not announced. Throws what `make` threw
  /// there.
  [[nodiscard]] Made get(const BatchPlace& place) {
    const auto found = announced_.find(place);
    if (found != announced_.end()) return found->second.get();
    ++made_late_;
    return make_(place);
  }
  /// Calls of get() that made something themselves.
  [[nodiscard]] std::int64_t made_late() const { return made_late_; }

 private:
  using Task = std::packaged_task<Made()>;

  void work() {
    while (auto task = next_task()) (*task)();
  }
  std::optional<Task> next_task() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
    if (ends_) return std::nullopt;
    Task task = std::move(tasks_.front().second);
    tasks_.pop_front();
    return task;
  }

  Make make_;
  std::map<BatchPlace, std::shared_future<Made>> announced_;  // of the calling thread
  std::int64_t made_late_ = 0;                                // likewise
  std::mutex mutex_;                                          // of what follows
  std::condition_variable changed_;
  std::deque<std::pair<BatchPlace, Task>> tasks_;  // that nobody has begun, in the order of their announcement
  bool ends_ = false;
  std::thread thread_;  // the last member: it uses the others
};

using SamplePrefetcher = Prefetcher<std::vector<Sample>>;

}  // namespace chimera

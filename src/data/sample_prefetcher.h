#pragma once

// Makes the samples of the next micro-batches on a background thread while the current step computes. The loader
// (train/loop/loader.h) calls prefetch() with the micro-batches that its rank will need, get() when the executor asks
// for one, and forget_before() when a step is over.

#include <compare>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "core/signals.h"
#include "data/samples.h"

namespace chimera {

/// Position of a micro-batch's samples in the data.
struct BatchPosition {
  std::int64_t step = 0;        // from 0
  std::int64_t first = 0;       // index of the first sample within the step
  std::int64_t size = 1;        // number of samples of the micro-batch
  std::int64_t mini_batch = 1;  // samples per step
  std::int64_t shift = 0;       // added to all positions, if earlier steps had other mini-batches
  friend auto operator<=>(const BatchPosition&, const BatchPosition&) = default;
};

/// Returns the samples of a micro-batch.
[[nodiscard]] inline std::vector<Sample> samples_at(const Samples& samples, const BatchPosition& place) {
  std::vector<Sample> result;
  for (std::int64_t i = 0; i < place.size; ++i)
    result.push_back(samples.sample_at(place.shift + place.step * place.mini_batch + place.first + i));
  return result;
}

/// Makes the data of micro-batches on a background thread, in the order of prefetch(), and keeps it until
/// forget_before(). `Made` is the data of one micro-batch. All member functions must be called on one thread.
template <class Made>
class Prefetcher {
 public:
  using Make = std::function<Made(const BatchPosition&)>;

  /// `make` must be pure and thread-safe. If no thread can be started, get() makes the data itself.
  explicit Prefetcher(Make make) : make_(std::move(make)) {
    const SignalBlocker no_signals;
    try {
      thread_ = std::thread([this] { work(); });
    } catch (const std::system_error&) {  // see the constructor
    }
  }
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  Prefetcher& operator=(Prefetcher&&) = delete;

  /// Queues micro-batches for the background thread. Ignores those that were queued before.
  void prefetch(const std::vector<BatchPosition>& places) {
    if (!thread_.joinable()) return;
    for (const BatchPosition& place : places) {
      if (announced_.contains(place)) continue;
      Task task([this, place] { return make_(place); });
      announced_.emplace(place, task.get_future().share());
      const std::lock_guard lock(mutex_);
      tasks_.emplace_back(place, std::move(task));
    }
    changed_.notify_one();
  }
  /// Drops the data of all steps before `step`.
  void forget_before(std::int64_t step) {
    announced_.erase(announced_.begin(), announced_.lower_bound(BatchPosition{.step = step, .first = 0, .size = 0}));
    const std::lock_guard lock(mutex_);
    std::erase_if(tasks_, [step](const auto& task) { return task.first.step < step; });
  }
  /// Waits for the data, or makes it if prefetch() was not called for `place`. Rethrows exceptions of `make`.
  [[nodiscard]] Made get(const BatchPosition& place) {
    const auto found = announced_.find(place);
    if (found != announced_.end()) return found->second.get();
    ++made_late_;
    return make_(place);
  }
  /// Returns how often get() had to make the data itself.
  [[nodiscard]] std::int64_t cache_misses() const { return made_late_; }

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
  std::map<BatchPosition, std::shared_future<Made>> announced_;  // caller's thread only
  std::int64_t made_late_ = 0;                                   // caller's thread only
  std::mutex mutex_;                                             // guards the members below
  std::condition_variable changed_;
  std::deque<std::pair<BatchPosition, Task>> tasks_;  // not started yet
  bool ends_ = false;
  std::thread thread_;  // last member, because it uses the others
};

using SamplePrefetcher = Prefetcher<std::vector<Sample>>;

}  // namespace chimera

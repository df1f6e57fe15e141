#include "data/sample_prefetcher.h"

#include <system_error>

#include "core/no_signals.h"

namespace chimera {

std::vector<Sample> samples_at(const Samples& samples, const BatchPlace& place) {
  std::vector<Sample> result;
  for (std::int64_t i = 0; i < place.size; ++i) {
    result.push_back(samples.sample(place.step, place.first + i, place.mini_batch));
  }
  return result;
}

SamplePrefetcher::SamplePrefetcher(Make make) : make_(std::move(make)) {
  const NoSignals no_signals;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {  // a limit of threads or memory: nothing is made ahead
  }
}

SamplePrefetcher::~SamplePrefetcher() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void SamplePrefetcher::prefetch(const std::vector<BatchPlace>& places) {
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

void SamplePrefetcher::forget_before(std::int64_t step) {
  announced_.erase(announced_.begin(), announced_.lower_bound(BatchPlace{.step = step, .first = 0, .size = 0}));
  const std::lock_guard lock(mutex_);
  std::erase_if(tasks_, [step](const auto& task) { return task.first.step < step; });
}

std::vector<Sample> SamplePrefetcher::get(const BatchPlace& place) {
  const auto found = announced_.find(place);
  if (found != announced_.end()) return found->second.get();
  ++made_late_;
  return make_(place);
}

void SamplePrefetcher::work() {
  while (auto task = next_task()) (*task)();
}

std::optional<SamplePrefetcher::Task> SamplePrefetcher::next_task() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
  if (ends_) return std::nullopt;
  Task task = std::move(tasks_.front().second);
  tasks_.pop_front();
  return task;
}

}  // namespace chimera

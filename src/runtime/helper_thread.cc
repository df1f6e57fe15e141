#include "runtime/helper_thread.h"

#include <ATen/ThreadLocalState.h>

#include <utility>

namespace chimera {

HelperThread::HelperThread() : thread_([this] { loop(); }) {}

HelperThread::~HelperThread() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::future<void> HelperThread::begin(const std::function<void()>& work) {
  // Grad mode, autocast and dispatch keys are thread-local, and the work must see those of the caller.
  std::packaged_task<void()> task([work, state = at::ThreadLocalState()] {
    const at::ThreadLocalStateGuard guard(state);
    work();
  });
  std::future<void> end = task.get_future();
  {
    const std::scoped_lock lock(mutex_);
    next_ = std::move(task);
  }
  changed_.notify_one();
  return end;
}

void HelperThread::loop() {
  for (;;) {
    std::packaged_task<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ends_ || next_; });
      // Work that was handed in before the end still runs, as its future is waited for.
      if (!next_) return;
      task = std::move(*std::exchange(next_, std::nullopt));
    }
    // Outside of the lock. A packaged_task stores an exception in the future.
    task();
  }
}

}  // namespace chimera

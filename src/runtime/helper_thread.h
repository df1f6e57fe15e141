#pragma once

// A thread that waits for work. Starting a new thread for each op would take longer than a small op, and the new thread
// would lack LibTorch's thread-local state. OpRunner runs the forward of a pair on a HelperThread while the worker's
// own thread runs the backward. The Checkpointer (train/recover/checkpointer.h) writes checkpoints on one while
// training continues.

#include <ATen/ThreadLocalState.h>
#include <c10/core/thread_pool.h>

#include <functional>
#include <future>
#include <memory>

namespace chimera {

/// Thread that runs one function at a time, with the caller's thread-local state of LibTorch. The destructor waits for
/// the end of the function.
class HelperThread {
 public:
  ~HelperThread() { pool_.waitWorkComplete(); }

  /// Starts `work`. The future becomes ready when it ends, and has its exception. The previous work must have ended.
  [[nodiscard]] std::future<void> begin(const std::function<void()>& work) {
    // Grad mode, autocast and dispatch keys are thread-local, and the work must see those of the caller. A
    // packaged_task stores an exception in the future.
    const auto task = std::make_shared<std::packaged_task<void()>>([work, state = at::ThreadLocalState()] {
      const at::ThreadLocalStateGuard guard(state);
      work();
    });
    std::future<void> end = task->get_future();
    pool_.run([task] { (*task)(); });
    return end;
  }

 private:
  c10::ThreadPool pool_{1};
};

}  // namespace chimera

#pragma once

// A thread that waits for work. Starting a new thread for each op would take longer than a small op, and the new thread
// would lack LibTorch's thread-local state. OpRunner runs the forward of a pair on a HelperThread while the worker's
// own thread runs the backward. SaveThread (train/recover/checkpointer.h) writes checkpoints on one while training
// continues.

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

namespace chimera {

/// Thread that runs one function at a time, with the caller's thread-local state of LibTorch. The destructor waits for
/// the end of the function.
class HelperThread {
 public:
  HelperThread();
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  /// Starts `work`. The future becomes ready when it ends, and has its exception. The previous work must have ended.
  [[nodiscard]] std::future<void> begin(const std::function<void()>& work);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::packaged_task<void()>> next_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace chimera

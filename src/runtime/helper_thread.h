#pragma once

// A thread that waits for work. Starting a thread for each op would cost more than a small op, and would give it none
// of LibTorch's thread-local state. OpRunner runs the forward of a pair on a HelperThread while the worker's own thread
// runs the backward; SaveThread (train/recover/checkpointer.h) writes checkpoints on one while training continues.

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

  /// Starts `work`; the future holds its end or exception. The previous work must have ended.
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

#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

namespace chimera {

/// Thread that runs one function at a time, with the caller's thread-local state of LibTorch. The forward of a pair
/// runs on it, beside the backward on the worker's own thread (OpRunner::compute_pair).
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

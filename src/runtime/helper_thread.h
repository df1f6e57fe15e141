#pragma once
// A second thread of a worker, for what runs beside its own.

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

namespace chimera {

/// Runs one piece of work at a time, with LibTorch's thread-local state (gradients on or off, what counts memory) of
/// whoever hands it over. The thread ends with the object.
class HelperThread {
 public:
  HelperThread();
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  /// Begins `work`; the future has its end, or what it threw. Requires that the work before has ended.
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

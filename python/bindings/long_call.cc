#include "long_call.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/signals.h"

namespace nb = nanobind;

namespace chimera {
namespace {

constexpr std::chrono::milliseconds kPollInterval(50);

/// A computation on its own thread, with its reports.
class Computation {
 public:
  explicit Computation(std::function<std::string(const Report&)> work) {
    thread_ = std::thread([this, work = std::move(work)] { run(work); });
  }
  ~Computation() { thread_.join(); }
  Computation(const Computation&) = delete;
  Computation& operator=(const Computation&) = delete;

  /// Waits for a report or the end, at most kPollInterval. Returns the new reports.
  [[nodiscard]] std::vector<std::string> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPollInterval, [&] { return ended_ || !reports_.empty(); });
    return std::exchange(reports_, {});
  }

  [[nodiscard]] bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  /// Returns the result of an ended computation, or throws its exception.
  [[nodiscard]] std::string take() {
    if (failure_) std::rethrow_exception(failure_);
    return std::move(answer_);
  }

  void cancel() { canceled_ = true; }

 private:
  void run(const std::function<std::string(const Report&)>& work) {
    const Interruptible scope(canceled_);
    std::string answer;
    std::exception_ptr failure;
    try {
      answer = work([&](const std::string& now) { report(now); });
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
    failure_ = std::move(failure);
    ended_ = true;
    changed_.notify_one();
  }

  void report(const std::string& now) {
    if (canceled_) throw Interrupted();
    const std::lock_guard lock(mutex_);
    reports_.push_back(now);
    changed_.notify_one();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> reports_;
  std::string answer_;
  std::exception_ptr failure_;
  bool ended_ = false;
  std::atomic<bool> canceled_ = false;
  std::thread thread_;
};

/// Canceled computations that still run. Requires the GIL.
std::list<std::unique_ptr<Computation>>& canceled() {
  static std::list<std::unique_ptr<Computation>> computations;
  return computations;
}

}  // namespace

std::string run_interruptibly(std::function<std::string(const Report&)> work,
                              const std::optional<nb::callable>& progress) {
  std::erase_if(canceled(), [](const auto& computation) { return computation->ended(); });
  auto computation = std::make_unique<Computation>(std::move(work));
  try {
    for (bool ended = false; !ended;) {
      std::vector<std::string> reports;
      {
        const nb::gil_scoped_release unlocked;
        ended = computation->ended();  // Before wait(), so that no report is lost
        reports = computation->wait();
      }
      for (const std::string& report : reports) {
        if (progress) (*progress)(report);
      }
      if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    }
  } catch (...) {
    computation->cancel();
    canceled().push_back(std::move(computation));
    throw;
  }
  return computation->take();
}

void await_canceled() {
  auto computations = std::exchange(canceled(), {});
  const nb::gil_scoped_release unlocked;
  computations.clear();
}

}  // namespace chimera

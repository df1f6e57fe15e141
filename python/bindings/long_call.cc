#include "long_call.h"

#include <nanobind/stl/string.h>

#include <atomic>
#include <chrono>
#include <future>
#include <list>
#include <memory>
#include <mutex>
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
  explicit Computation(std::function<std::string(const Report&)> work)
      : result_(std::async(std::launch::async, [this, work = std::move(work)] {
          const Interruptible scope(canceled_);
          return work([this](const std::string& now) { report(now); });
        })) {}

  /// Waits for the end, at most kPollInterval. Returns the new reports.
  [[nodiscard]] std::vector<std::string> wait() {
    result_.wait_for(kPollInterval);
    const std::lock_guard lock(mutex_);
    return std::exchange(reports_, {});
  }

  [[nodiscard]] bool ended() const { return result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

  /// Returns the result, or throws the exception of the computation.
  [[nodiscard]] std::string take() { return result_.get(); }

  void cancel() { canceled_ = true; }

 private:
  void report(const std::string& now) {
    if (canceled_) throw Interrupted();
    const std::lock_guard lock(mutex_);
    reports_.push_back(now);
  }

  std::mutex mutex_;
  std::vector<std::string> reports_;
  std::atomic<bool> canceled_ = false;
  std::future<std::string> result_;  // The last member: its destructor waits for the thread, which uses the others
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

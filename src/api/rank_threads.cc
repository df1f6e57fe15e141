#include "api/rank_threads.h"

#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "transport/threads/thread_transport.h"

namespace chimera {
namespace {

/// The first failure; one with a reason of its own before one that only lost a peer.
class FirstFailure {
 public:
  void note(std::exception_ptr failure, bool own_reason) {
    const std::lock_guard lock(mutex_);
    if (failure_ && (own_reason_ || !own_reason)) return;
    failure_ = std::move(failure);
    own_reason_ = own_reason;
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;
  bool own_reason_ = false;
};

}  // namespace

void run_rank_threads(int ranks, const StageGroups& groups, const std::function<void(WorkerId, Transport&)>& body) {
  ThreadHub hub(ranks, groups);
  FirstFailure failure;
  const auto run = [&](int rank) {
    std::string why;
    try {
      const auto transport = hub.transport(WorkerId(rank));
      body(WorkerId(rank), *transport);
      return;
    } catch (const PeerLostError& error) {
      failure.note(std::current_exception(), false);
      why = error.what();
    } catch (const std::exception& error) {
      failure.note(std::current_exception(), true);
      why = error.what();
    } catch (...) {
      failure.note(std::current_exception(), true);
      why = "an unknown exception";
    }
    hub.close("rank " + std::to_string(rank) + " failed: " + why);
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : threads) thread.join();
  failure.rethrow();
}

}  // namespace chimera

#include "profile/rank_threads.h"

#include <utility>

namespace chimera {

RankThreads::RankThreads(int ranks) {
  for (int r = 0; r < ranks; ++r) threads_.emplace_back([this, r] { serve(WorkerId(r)); });
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::run(int ranks, const Body& body) {
  std::unique_lock lock(mutex_);
  body_ = &body;
  ranks_ = at_work_ = ranks;
  ++turn_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return at_work_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void RankThreads::serve(WorkerId rank) {
  std::unique_lock lock(mutex_);
  std::int64_t seen = 0;
  while (true) {
    changed_.wait(lock, [&] { return over_ || turn_ > seen; });
    if (over_) return;
    seen = turn_;
    if (rank.value() >= ranks_) continue;
    lock.unlock();
    std::exception_ptr failure;
    try {
      (*body_)(rank);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && !failure_) failure_ = failure;
    if (--at_work_ == 0) changed_.notify_all();
  }
}

}  // namespace chimera

#include "transport/threads/rank_threads.h"

#include <fmt/format.h>

#include <iterator>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "transport/threads/thread_transport.h"

namespace chimera {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

RankThreads::RankThreads(int ranks) {
  for (int r = 1; r < ranks; ++r) {
    try {
      threads_.emplace_back([this, r] { serve(RankId(r)); });
    } catch (const std::system_error& error) {
      end();
      throw Error(
          fmt::format("no thread for rank {} of {}: {}; use fewer ranks, or raise the limits on processes and "
                      "memory (ulimit -u, ulimit -v)",
                      r, ranks, error.code().message()));
    }
  }
}

RankThreads::~RankThreads() { end(); }

void RankThreads::end() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::optional<RankFailure> RankThreads::run(int ranks, const Body& body, const Close& close) {
  if (ranks < 1 || ranks > std::ssize(threads_) + 1) throw std::logic_error("a rank without a thread");
  {
    const std::lock_guard lock(mutex_);
    turn_ = {.body = &body, .close = &close, .ranks = ranks, .at_work = ranks - 1};
    ++turns_;
    // A thread compares this number with the last run that it has seen, so it takes part in each run once.
  }
  changed_.notify_all();
  play(RankId(0));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return turn_.at_work == 0; });
  return std::exchange(turn_.failure, std::nullopt);
}

// A thread sleeps between runs. It takes part in a run if its rank does, and skips runs with fewer ranks.
void RankThreads::serve(RankId rank) {
  std::unique_lock lock(mutex_);
  for (std::int64_t seen = 0;;) {
    changed_.wait(lock, [&] { return over_ || turns_ > seen; });
    if (over_) return;
    seen = turns_;
    if (rank.value() >= turn_.ranks) continue;
    lock.unlock();
    play(rank);
    lock.lock();
    if (--turn_.at_work == 0) changed_.notify_all();
  }
}

void RankThreads::play(RankId rank) {
  try {
    (*turn_.body)(rank);
  } catch (const PeerLostError& error) {
    note_failure(rank, /*own_reason=*/false, error.what());
  } catch (const std::exception& error) {
    note_failure(rank, /*own_reason=*/true, error.what());
  } catch (...) {
    note_failure(rank, /*own_reason=*/true, "an unknown exception");
  }
}

/// Keeps the current exception if it is the first, or the first with a reason of its own: closing the hub makes the
/// other ranks fail, too, and only the first cause helps the user. Call it within a handler.
void RankThreads::note_failure(RankId rank, bool own_reason, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!turn_.failure || (own_reason && !turn_.own_reason)) {
      turn_.failure = {.rank = rank, .error = std::current_exception()};
      turn_.own_reason = own_reason;
    }
  }
  (*turn_.close)(fmt::format("rank {} failed: {}", rank.value(), first_line(why)));
}

std::optional<RankFailure> try_rank_threads(int ranks, const RankGroups& groups,
                                            const std::function<void(RankId, Transport&)>& body) {
  RankThreads threads(ranks);
  ThreadHub hub(ranks, groups);
  return threads.run(
      ranks, [&](RankId rank) { body(rank, *hub.transport(rank)); }, [&](const std::string& why) { hub.close(why); });
}

void run_rank_threads(int ranks, const RankGroups& groups, const std::function<void(RankId, Transport&)>& body) {
  if (const auto failure = try_rank_threads(ranks, groups, body)) std::rethrow_exception(failure->error);
}

}  // namespace chimera

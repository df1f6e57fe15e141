#pragma once
// The ranks of a run as threads of this process.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "transport/transport.h"

namespace chimera {

/// A rank that ended by an exception.
struct RankFailure {
  RankId rank;
  std::exception_ptr error;
};

/// A thread for each rank but 0, which is the caller of run(): kept from run to run, so that what torch keeps for a
/// thread stays.
class RankThreads {
 public:
  using Body = std::function<void(RankId)>;
  using Close = std::function<void(const std::string& why)>;

  /// Throws Error where the system refuses a thread; none is left behind then.
  explicit RankThreads(int ranks);
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;
  ~RankThreads();

  /// Calls body(0) .. body(ranks - 1), of at most as many ranks as there are threads for, each rank in its own thread,
  /// the same one every time, and returns when all have ended. As soon as one throws, `close` is called with `rank 1
  /// failed: WHY`: it must make the others end too, as ThreadHub::close() does, and may be called several times, by any
  /// thread. Returns the first failure, one with a reason of its own (no PeerLostError) before one without; none where
  /// all returned.
  [[nodiscard]] std::optional<RankFailure> run(int ranks, const Body& body, const Close& close);

 private:
  struct Turn {  // one run()
    const Body* body = nullptr;
    const Close* close = nullptr;
    int ranks = 0;
    int at_work = 0;  // threads
    std::optional<RankFailure> failure = std::nullopt;
    bool own_reason = false;  // of the failure
  };

  void serve(RankId rank);
  void play(RankId rank);
  void note_failure(RankId rank, bool own_reason);
  void end();

  std::mutex mutex_;
  std::condition_variable changed_;
  Turn turn_;
  std::int64_t turns_ = 0;  // begun
  bool over_ = false;
  std::vector<std::thread> threads_;  // of ranks 1, 2, ...
};

/// Runs `body` as each of `ranks` ranks, joined by a ThreadHub that a failure closes. Rank 0 is on the caller's thread.
/// Returns the failure as RankThreads::run() does. Throws Error where the system refuses a thread.
[[nodiscard]] std::optional<RankFailure> try_rank_threads(int ranks, const RankGroups& groups,
                                                          const std::function<void(RankId, Transport&)>& body);

/// The same, and throws what the rank threw.
void run_rank_threads(int ranks, const RankGroups& groups, const std::function<void(RankId, Transport&)>& body);

}  // namespace chimera

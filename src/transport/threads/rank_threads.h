#pragma once

// Runs ranks as threads of this process, for `--transport threads`, tests and the Python package. The caller's thread
// is rank 0; each other rank has a thread, which is kept between runs. If a rank throws, its error ends the other
// ranks, too. The result is the first error that was not caused by another rank. thread_transport.h connects these
// ranks.

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

/// A rank that has thrown, and its exception.
struct RankFailure {
  RankId rank;
  std::exception_ptr error;
};

/// The threads of ranks 1, 2, ...; the caller of run() is rank 0. The threads, and with them torch's thread-local data,
/// are kept between runs.
class RankThreads {
 public:
  using Body = std::function<void(RankId)>;
  using Close = std::function<void(const std::string& why)>;

  /// Throws Error if the system refuses a thread.
  explicit RankThreads(int ranks);
  RankThreads& operator=(RankThreads&&) = delete;
  ~RankThreads();

  /// Calls body(0) .. body(ranks - 1), each on its thread, and returns when all have ended. `ranks` is at most the
  /// number in the constructor. If a rank throws, calls `close` on its thread with the text `rank 1 failed: WHY`;
  /// `close` must end the other ranks, as ThreadHub::close() does. Returns the first failure that is no PeerLostError;
  /// if there is none, the first failure; nothing if no rank has failed.
  [[nodiscard]] std::optional<RankFailure> run(int ranks, const Body& body, const Close& close);

 private:
  struct Turn {  // state of a call of run()
    const Body* body = nullptr;
    const Close* close = nullptr;
    int ranks = 0;
    int at_work = 0;  // number of ranks that have not ended
    std::optional<RankFailure> failure = std::nullopt;
    bool own_reason = false;  // `failure` is no PeerLostError
  };

  void serve(RankId rank);
  void play(RankId rank);
  void note_failure(RankId rank, bool own_reason, const std::string& why);
  void end();

  std::mutex mutex_;
  std::condition_variable changed_;
  Turn turn_;
  std::int64_t turns_ = 0;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

/// Runs `body` once on each rank, with a transport to the other ranks (ThreadHub, which also takes `groups`). If a rank
/// throws, closes the transports. Returns the result of RankThreads::run(). Throws Error if the system refuses a
/// thread.
[[nodiscard]] std::optional<RankFailure> try_rank_threads(int ranks, const RankGroups& groups,
                                                          const std::function<void(RankId, Transport&)>& body);

/// Does the same as try_rank_threads(), but throws the exception of the failed rank.
void run_rank_threads(int ranks, const RankGroups& groups, const std::function<void(RankId, Transport&)>& body);

}  // namespace chimera

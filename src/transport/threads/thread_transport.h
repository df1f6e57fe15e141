#pragma once

// The transport between ranks that are threads of one process. Messages are references; the last member that waits for
// a sum adds it for all. See transport.h for the contract.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/stream.h"
#include "transport/threads/channel.h"
#include "transport/transport.h"

namespace chimera {

/// A member's contribution to a collective.
struct Addend {
  GradientSum sum;        ///< To add; to gather: the buffer and the number of each member's elements
  bool gathers = false;   ///< The collective is an all-gather
  StreamMark ready = {};  ///< when the tensors of `sum` are ready
};

struct SumResult {
  bool closed = false;  ///< the flag was closed; the buffer holds no sum
  std::string error;
};

/// Rounds of a collective: the members' n-th deposits form round n.
class ThreadSum {
 public:
  explicit ThreadSum(std::size_t num_members) : num_members_(num_members), next_round_(num_members, 0) {}
  /// Returns the round of the contribution. Does not wait.
  [[nodiscard]] std::int64_t deposit(std::size_t member, Addend addend);
  /// Blocks until each buffer holds the result or `close_flag` is closed. No buffer is accessed after any member's
  /// wait() has returned. Call it once per member and round.
  [[nodiscard]] SumResult wait(std::int64_t round, const CloseFlag& close_flag);
  /// Makes blocked waits check their flag again.
  void wake();

 private:
  enum class Phase { Collecting, Summing, Done };
  struct Round {
    std::vector<Addend> addends;  ///< by member
    std::size_t num_deposited = 0;
    std::size_t num_left = 0;  ///< members that have returned from wait()
    Phase phase = Phase::Collecting;
    StreamMark summed;  ///< when every buffer holds the sum
    std::string error;
  };
  [[nodiscard]] Round& round_of(std::int64_t number);
  void drop_finished_rounds();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t num_members_;
  std::vector<std::int64_t> next_round_;  ///< by member
  std::deque<Round> rounds_;              ///< rounds first_, first_ + 1, ...
  std::int64_t first_ = 0;
};

/// Connects ranks 0 .. ranks-1 as threads of a process. Must outlive the transports and their pending operations. Sends
/// complete at once. A received tensor shares the sender's memory, so neither side may write to it. Sums add in
/// ascending order of ranks.
class ThreadHub {
 public:
  ThreadHub(int ranks, RankGroups groups);
  ~ThreadHub();
  /// Returns the endpoint of a rank, at most once. Its waits throw TransportError if a message has unexpected sizes or
  /// type.
  [[nodiscard]] std::unique_ptr<Transport> transport(RankId rank);
  /// Makes blocked and later waits throw PeerLostError with the first `why`. Call it if a rank fails. Thread-safe.
  void close(const std::string& why);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace chimera

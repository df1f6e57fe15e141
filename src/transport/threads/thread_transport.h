#pragma once

#include <ATen/core/Tensor.h>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "schedule/reduction_tree.h"
#include "transport/stream.h"
#include "transport/threads/channel.h"
#include "transport/transport.h"

// A sum over buffers of several rank threads, always in the same order; or the parts that each of them owns, for all.

// Ranks as threads of one process: tensors are handed over by reference, nothing is copied.

namespace chimera {

/// What a member hands in: a buffer that is added to the others' and becomes the sum; or parts that are added in an
/// order common to all members, with a buffer that becomes the sum; or a buffer of which each member owns a part.
struct Addend {
  at::Tensor buffer;
  std::vector<at::Tensor> parts = {};
  const SumOrder* order = nullptr;        ///< none: members ascending
  std::vector<std::int64_t> counts = {};  ///< by member: elements that it owns, one behind the other; nothing is added
  StreamMark ready = {};                  ///< after which they hold what is to be added
};

/// What became of a wait for a sum.
struct SumResult {
  bool closed = false;  ///< the flag was raised; the buffer holds no sum
  std::string error;    ///< not empty: the buffers do not fit each other
};

/// Rounds of summing: a member's first buffer meets the first of every other member, the second the second, and so on.
class ThreadSum {
 public:
  explicit ThreadSum(std::size_t num_members) : num_members_(num_members), next_round_(num_members, 0) {}
  /// Hands in the member's next buffer and returns the number of its round. Never waits for another member.
  [[nodiscard]] std::int64_t deposit(std::size_t member, Addend addend);
  /// Blocks until all members have handed in for the round and each buffer holds the sum, formed once, in the
  /// order of the addends; or until `close_flag` is closed. No buffer is touched after any member's wait() has
  /// returned. To be called once by each member for each round.
  [[nodiscard]] SumResult wait(std::int64_t round, const CloseFlag& close_flag);
  /// Makes blocked waits look at their flag again.
  void wake();

 private:
  enum class Phase { Collecting, Summing, Done };
  struct Round {
    std::vector<Addend> addends;  ///< by member
    std::size_t num_deposited = 0;
    std::size_t num_left = 0;  ///< members that have returned from wait()
    Phase phase = Phase::Collecting;
    StreamMark summed;  ///< after which every buffer holds the sum
    std::string error;
  };
  void drop_finished_rounds();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t num_members_;
  std::vector<std::int64_t> next_round_;  ///< by member
  std::deque<Round> rounds_;              ///< rounds first_, first_ + 1, ...
  std::int64_t first_ = 0;
};

/// Connects the ranks 0 .. ranks-1 of one process. It must outlive the transports and what they have under way. A send
/// completes at once. Sums are formed once, in ascending order of ranks: every rank gets the same bits, and the same in
/// every run. A received tensor shares the sender's memory, so neither side may write to it.
class ThreadHub {
 public:
  ThreadHub(int ranks, RankGroups groups);
  ~ThreadHub();
  /// The end of one rank, to be used by one thread. At most one end for each rank.
  /// Its waits throw TransportError where what arrives is not of the expected sizes and type.
  [[nodiscard]] std::unique_ptr<Transport> transport(RankId rank);
  /// Ends all communication, from any thread: every wait() and all_sum(), blocked now or called later, throws
  /// PeerLostError with `why`. To be called when a rank fails, or the others would wait for it for ever. The first
  /// reason stays.
  void close(const std::string& why);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace chimera

#pragma once
// c10d process groups between threads, as strict as NCCL: the k-th calls of all members of a group match, and a
// transfer is done when both ends have reached it. A member's first transfer, and its first collective of a kind and
// size, block until the other members join, because NCCL connects them on the caller's thread.
// Matching calls must all be outside of recordings, or all in the same recording of their members.

#include <ATen/ATen.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "transport/pairs/pair_transport.h"

namespace chimera::testing {

/// All groups of a job, with a thread for each rank. It must outlive them. It closes itself if the ranks deadlock.
class FakeNetwork {
 public:
  FakeNetwork(int ranks, RankGroups groups, std::vector<RankPair> pairs);

  /// The process groups of a rank, for its thread.
  [[nodiscard]] Communicators communicators(int rank, bool sums_in_order = false);
  /// Called with the tensor of each send and receive, where c10d's NCCL backend calls recordStream(). May be empty.
  std::function<void(const at::Tensor& tensor)> records = {};
  /// Whether the group of all ranks ignores aborts, as it may do for some time after other groups.
  bool everyone_outlives_aborts = false;
  /// What all groups report.
  std::atomic<c10d::ErrorType> error = c10d::ErrorType::SUCCESS;
  /// Makes every wait throw, now and later; the first reason stays.
  void close(const std::string& why);
  /// Returns the number of connections of groups for sums so far.
  [[nodiscard]] std::size_t sum_connections();
  /// Returns the timeouts of the members of all groups, without repetition.
  [[nodiscard]] std::set<std::chrono::milliseconds> timeouts();
  /// Reason for which it was closed; empty if it was not.
  [[nodiscard]] std::string why_closed();

  enum class Kind { Send, Receive, AllReduce, AllGather, AllToAll, Broadcast, Reduce, ReduceScatter };
  /// Returns the bytes that all members of groups for sums have sent in collectives of this kind so far, as NCCL's
  /// rings send them.
  [[nodiscard]] std::int64_t sent_bytes(Kind kind);
  /// Arguments of a member's call.
  struct Call {
    Kind kind = Kind::Send;
    at::Tensor in = {};
    std::vector<at::Tensor> out = {};
    int root = 0;                             // Broadcast and Reduce: the member that sends, or gets the sum
    std::vector<std::int64_t> sent = {};      // AllToAll: elements to each member
    std::vector<std::int64_t> received = {};  // AllToAll: elements from each member
    c10::StreamId stream = 0;                 // current stream of the caller
    bool awaited = false;
    int recording = 0;  // FakeDevice::recording_number() of the call, also when it is repeated
    bool done = false;
  };
  /// Calls that NCCL connects separately: all transfers; collectives by kind and order of magnitude of their elements,
  /// for which NCCL may choose another algorithm.
  using Way = std::pair<Kind, int>;
  /// Calls of one process group, by member.
  struct Group {
    std::vector<std::deque<std::shared_ptr<Call>>> waiting = {};
    std::map<Way, std::set<std::size_t>> connecting = {};            // members that have made such a call
    std::map<std::size_t, std::chrono::milliseconds> timeouts = {};  // by member
    std::set<std::size_t> aborted = {};                              // members
  };
  void issue(Group& group, std::size_t member, const std::shared_ptr<Call>& call);
  void wait_for(Call& call);
  /// Ends all operations of the group, the current and later ones, with wrong data, as NCCL may do on all members. New
  /// ones of this member throw.
  void abort(Group& group, std::size_t member);
  void set_timeout(Group& group, std::size_t member, std::chrono::milliseconds timeout);
  /// Closes the network if a send or receive that was started on `stream` has not been waited for: a rank that waits
  /// for its device then waits for a peer, which may wait for this rank. `why` names what waits.
  void device_waits(c10::StreamId stream, const std::string& why);

 private:
  void carry_out(const std::vector<std::shared_ptr<Call>>& calls);
  void wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_done);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string why_;
  std::list<std::function<bool()>> waits_;  // conditions that ranks wait for
  std::map<c10::StreamId, std::int64_t> pending_transfers_;
  std::map<Kind, std::int64_t> sent_bytes_;
  int ranks_;
  RankGroups groups_;
  Group everyone_;
  std::vector<Group> process_groups_;
  std::map<RankPair, std::array<Group, 2>> pairs_;  // from the lower rank to the higher, and back
};

}  // namespace chimera::testing

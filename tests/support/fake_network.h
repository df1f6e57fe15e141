#pragma once
// c10d process groups between threads, as strict as NCCL: the k-th calls of all members of a group match, and a
// transfer is done when both ends have reached it. A member's first transfer, and its first collective, block until the
// other members join, because NCCL connects them on the caller's thread. Matching calls must all be outside of
// recordings, or all in the same recording of their members.

#include <ATen/ATen.h>

#include <array>
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
#include <vector>

#include "transport/pairs/pair_transport.h"

namespace chimera::testing {

/// All groups of a job, with a thread for each rank. It must outlive them. It closes itself if the ranks deadlock.
class FakeNetwork {
 public:
  FakeNetwork(int ranks, RankGroups groups, std::vector<RankPair> pairs);

  /// The process groups of a rank, for its thread.
  [[nodiscard]] Communicators communicators(int rank, bool sums_in_order = false);
  /// Makes every wait throw, now and later; the first reason stays.
  void close(const std::string& why);
  /// Reason for which it was closed; empty if it was not.
  [[nodiscard]] std::string why_closed();

  enum class Kind { Send, Receive, AllReduce, AllGather, AllToAll, Broadcast };
  /// Arguments of a member's call.
  struct Call {
    Kind kind = Kind::Send;
    at::Tensor in = {};
    std::vector<at::Tensor> out = {};
    int root = 0;                             // Broadcast: the member that sends
    std::vector<std::int64_t> sent = {};      // AllToAll: elements to each member
    std::vector<std::int64_t> received = {};  // AllToAll: elements from each member
    int recording = 0;                        // FakeDevice::recording_number() of the call, also when it is repeated
    bool done = false;
  };
  /// Kinds of calls that NCCL connects separately.
  enum class Way : std::uint8_t { Transfers, Collectives };
  /// Calls of one process group, by member.
  struct Group {
    std::vector<std::deque<std::shared_ptr<Call>>> waiting = {};
    std::map<Way, std::set<std::size_t>> connecting = {};  // members that have made a call of this kind
  };
  void issue(Group& group, std::size_t member, const std::shared_ptr<Call>& call);
  void wait_for(const Call& call);

 private:
  void carry_out(const std::vector<std::shared_ptr<Call>>& calls);
  void wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_done);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string why_;
  std::list<std::function<bool()>> waits_;  // conditions that ranks wait for
  int ranks_;
  RankGroups groups_;
  Group everyone_;
  std::vector<Group> process_groups_;
  std::map<RankPair, std::array<Group, 2>> pairs_;  // from the lower rank to the higher, and back
};

}  // namespace chimera::testing

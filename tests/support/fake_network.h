#pragma once
// c10d process groups between threads, as strict as NCCL's: the k-th call of every member of a group belongs to the
// k-th of the others, and a transfer is done when both ends have come to it. A member's first transfer, and its first
// collective, wait for the others': NCCL connects them there, on the caller's thread.

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

/// All groups of a job, each rank's for a thread of its own. It must outlive them. Where all ranks wait, and none for
/// what is done, it is closed.
class FakeNetwork {
 public:
  FakeNetwork(int ranks, RankGroups groups, std::vector<RankPair> pairs);

  /// The process groups of a rank, for its thread.
  [[nodiscard]] Communicators communicators(int rank, bool sums_in_order = false);
  /// Makes every wait throw, now and later; the first reason stays.
  void close(const std::string& why);
  /// Why it was closed; empty: it was not.
  [[nodiscard]] std::string why_closed();

  enum class Kind { Send, Receive, AllReduce, AllGather, AllToAll, Broadcast };
  /// What a member was asked for.
  struct Call {
    Kind kind = Kind::Send;
    at::Tensor in = {};
    std::vector<at::Tensor> out = {};
    int root = 0;                             // Broadcast: the member that has it
    std::vector<std::int64_t> sent = {};      // AllToAll: elements to each member
    std::vector<std::int64_t> received = {};  // likewise from each
    bool done = false;
  };
  /// What NCCL connects separately.
  enum class Way : std::uint8_t { Transfers, Collectives };
  /// One process group's calls, by member.
  struct Group {
    std::vector<std::deque<std::shared_ptr<Call>>> waiting = {};
    std::map<Way, std::set<std::size_t>> connecting = {};  // the members that have made a call of this way
  };
  void issue(Group& group, std::size_t member, const std::shared_ptr<Call>& call);
  void wait_for(const Call& call);

 private:
  void carry_out(const std::vector<std::shared_ptr<Call>>& calls);
  void wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_done);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string why_;
  std::list<std::function<bool()>> waits_;  // of ranks: what each waits for
  int ranks_;
  RankGroups groups_;
  Group everyone_;
  std::vector<Group> process_groups_;
  std::map<RankPair, std::array<Group, 2>> pairs_;  // from the lower rank to the higher, and back
};

}  // namespace chimera::testing

#pragma once
// c10d process groups between threads, as strict as NCCL's: the k-th call of every member of a group belongs to the
// k-th of the others, and a transfer is done when both ends have come to it.

#include <ATen/ATen.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "transport/pairs/pair_transport.h"

namespace chimera::testing {

/// All groups of a job. It must outlive them.
class FakeNetwork {
 public:
  FakeNetwork(int ranks, RankGroups groups, std::vector<RankPair> pairs);

  /// The process groups of a rank, for its thread.
  [[nodiscard]] Communicators communicators(int rank);
  /// Makes every wait throw, now and later; the first reason stays.
  void close(const std::string& why);
  /// Why it was closed; empty: it was not.
  [[nodiscard]] std::string why_closed();

  enum class Kind { Send, Receive, AllReduce, AllGather, AllToAll };
  /// What a member was asked for.
  struct Call {
    Kind kind = Kind::Send;
    at::Tensor in = {};
    std::vector<at::Tensor> out = {};
    std::vector<std::int64_t> sent = {};      // AllToAll: elements to each member
    std::vector<std::int64_t> received = {};  // likewise from each
    bool done = false;
  };
  /// One process group's calls, by member.
  struct Group {
    std::vector<std::deque<std::shared_ptr<Call>>> waiting = {};
  };
  void issue(Group& group, std::size_t member, const std::shared_ptr<Call>& call);
  void wait_for(const Call& call);

 private:
  void carry_out(const std::vector<std::shared_ptr<Call>>& calls);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string why_;
  int ranks_;
  RankGroups groups_;
  Group everyone_;
  std::vector<Group> process_groups_;
  std::map<RankPair, std::array<Group, 2>> pairs_;  // from the lower rank to the higher, and back
};

}  // namespace chimera::testing

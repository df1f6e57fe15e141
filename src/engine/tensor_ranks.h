#pragma once

// Tensor parallelism as T copies of the pipelines (lanes). The T ranks of a worker are neighbors: worker p of the
// pipelines is ranks p T .. p T + T - 1, and lane t has every rank p T + t. A lane is a whole run for schedule, program
// and executor, which know nothing of T: its messages and gradient sums stay in the lane (LaneTransport). Inside ops,
// the T ranks of a worker add what the split layers need (RankTensorGroup).
//
//   worker 0   ranks 0, 1   <- sums inside ops            T = 2, two stages:
//   worker 1   ranks 2, 3                                 lane 0: ranks 0 -> 2    lane 1: ranks 1 -> 3
//
// This cannot deadlock. All T ranks of a worker run one program, so they reach their sums inside ops in one order. Take
// a run of one lane alone, which the checker has proven to end, and let every instruction of it be done by all lanes
// before the next: each sum then has all its members in the same op, and each message goes from a lane to the same
// lane. So in any state in which all ranks wait, the rank that is least far in this order waits for nothing.

#include <vector>

#include "core/clock.h"
#include "model/tensor_parallel.h"
#include "schedule/rank_layout.h"
#include "transport/forwarding_transport.h"
#include "transport/groups.h"

namespace chimera {

/// Ranks of a run with T ranks per worker. `pipelines` ranks are those of RankLayout.
struct TensorRanks {
  std::int64_t pipelines = 1;  // ranks of one lane, W D
  std::int64_t ranks = 1;      // T

  [[nodiscard]] std::int64_t count() const { return pipelines * ranks; }
  [[nodiscard]] RankId rank(RankId in_lane, std::int64_t lane) const { return RankId(in_lane.value() * ranks + lane); }
  [[nodiscard]] RankId in_lane(RankId rank) const { return RankId(rank.value() / ranks); }
  [[nodiscard]] TensorPlace place(RankId rank) const { return {rank.value() % ranks, ranks}; }

  /// Returns each group of a lane in all lanes: [group T + lane].
  [[nodiscard]] RankGroups in_lanes(const RankGroups& of_lane) const;
  /// Returns the transport's groups: for each group of a lane its T copies, then the T ranks of each worker. With T = 1
  /// they are the groups of the lane.
  [[nodiscard]] RankGroups groups(const RankGroups& of_lane) const;
  [[nodiscard]] ParameterGroupId group(ParameterGroupId in_lane, std::int64_t lane) const {
    return ParameterGroupId(in_lane.value() * ranks + lane);
  }
  /// Returns the group of the T ranks of a worker, among groups() of `num_groups` groups of a lane.
  [[nodiscard]] ParameterGroupId tensor_group(RankId rank, std::size_t num_groups) const {
    return ParameterGroupId(static_cast<std::int64_t>(num_groups) * ranks + in_lane(rank).value());
  }
  /// Returns each pair of a lane in all lanes.
  [[nodiscard]] std::vector<RankPair> pairs(const std::vector<RankPair>& of_lane) const;
};

/// The transport of one lane. Numbers of all_sum() are added over all ranks of all lanes.
class LaneTransport final : public ForwardingTransport {
 public:
  LaneTransport(Transport& all, const TensorRanks& ranks, std::int64_t lane)
      : ForwardingTransport(all), ranks_(ranks), lane_(lane) {}

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override {
    return ForwardingTransport::start_send(ranks_.rank(to, lane_), std::move(tensor), tag);
  }
  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) override {
    return ForwardingTransport::post_receive(ranks_.rank(from, lane_), spec, tag);
  }
  std::unique_ptr<Pending> start_sum(ParameterGroupId group, GradientSum sum) override {
    return ForwardingTransport::start_sum(ranks_.group(group, lane_), std::move(sum));
  }
  std::unique_ptr<Pending> start_all_gather(ParameterGroupId group, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override {
    return ForwardingTransport::start_all_gather(ranks_.group(group, lane_), std::move(buffer), counts);
  }
  void connect_sums(ParameterGroupId group, const at::Tensor& gradients,
                    const std::vector<std::int64_t>& counts) override {
    ForwardingTransport::connect_sums(ranks_.group(group, lane_), gradients, counts);
  }

 private:
  TensorRanks ranks_;
  std::int64_t lane_;
};

/// Sums over the T ranks of a worker on a transport of all ranks, which it borrows.
class RankTensorGroup final : public TensorGroup {
 public:
  RankTensorGroup(Transport& all, const TensorPlace& place, ParameterGroupId group, bool cuts_tokens = false)
      : TensorGroup(place, cuts_tokens), all_(all), group_(group) {}

  void sum(const at::Tensor& values) override {
    const double start = monotonic_seconds();
    all_.sum_in_op(group_, values.view({-1}));
    seconds_ += monotonic_seconds() - start;
  }
  std::vector<at::Tensor> exchange(const at::Tensor& values) override {
    const double start = monotonic_seconds();
    std::vector<at::Tensor> parts = parts_of(values);
    seconds_ += monotonic_seconds() - start;
    return parts;
  }
  /// Returns the seconds of all calls so far, with the waits for the other ranks.
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  std::vector<at::Tensor> parts_of(const at::Tensor& values);

  Transport& all_;
  ParameterGroupId group_;
  double seconds_ = 0;
};

}  // namespace chimera

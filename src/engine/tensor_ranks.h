#pragma once

// Tensor parallelism: T neighboring ranks share each layer of a worker (model/tensor_parallel.h). The first rank of
// every worker, taken together, form lane 0, the second ranks lane 1, and so on. Each lane runs the schedule like a run
// without tensor parallelism: its messages and gradient sums stay in the lane (LaneTransport). So program and executor
// do not depend on T. Only inside ops, the T ranks of a worker add and exchange their parts of layers
// (RankTensorGroup).
//
//              lane 0      lane 1                T = 2, two workers
//   worker 0   rank 0  <-> rank 1                <->  sums inside ops
//                |           |                    |   messages between stages
//   worker 1   rank 2  <-> rank 3
//
// This cannot deadlock. The check of programs (check/check_program.h) proves that one lane alone runs to its end, in
// some order of its instructions. Let all lanes execute each instruction of this order before the next. Every sum
// inside an op then has all its members in the same op, and every message stays in its lane, so no instruction needs a
// later one. Whatever order the ranks really run in, the rank that is least far in this order can therefore continue.

#include "model/tensor_parallel.h"
#include "schedule/rank_layout.h"
#include "transport/forwarding_transport.h"
#include "transport/groups.h"
#include "transport/stream.h"

namespace chimera {

/// Numbers of the ranks of a run with T ranks per worker. A lane has `pipelines` ranks, which RankLayout
/// (schedule/rank_layout.h) numbers as if there were no other lanes.
struct TensorRanks {
  std::int64_t pipelines = 1;    // ranks of one lane: all workers of all data-parallel groups
  std::int64_t ranks = 1;        // T, number of lanes
  std::int64_t head_groups = 0;  // groups of attention heads that the T ranks divide; 0: T divides the heads

  /// Returns the number of ranks of the whole run.
  [[nodiscard]] std::int64_t count() const { return pipelines * ranks; }
  /// Returns the rank in the whole run of rank `in_lane` of a lane; in_lane() is the inverse.
  [[nodiscard]] RankId rank(RankId in_lane, std::int64_t lane) const { return RankId(in_lane.value() * ranks + lane); }
  [[nodiscard]] RankId in_lane(RankId rank) const { return RankId(rank.value() / ranks); }
  /// Returns the rank's place among the T ranks of its worker.
  [[nodiscard]] TensorPlace place(RankId rank) const { return {rank.value() % ranks, ranks, head_groups}; }

  /// Converts the groups of ranks in a lane to groups in the whole run, one per lane: element g * T + t is group g in
  /// lane t.
  [[nodiscard]] RankGroups in_lanes(const RankGroups& of_lane) const;
  /// Returns all groups of ranks for the transport: in_lanes(), then for each worker the group of its T ranks. With T =
  /// 1, returns `of_lane`.
  [[nodiscard]] RankGroups groups(const RankGroups& of_lane) const;
  /// Returns the index in in_lanes() of a lane's group.
  [[nodiscard]] ParameterGroupId group(ParameterGroupId in_lane, std::int64_t lane) const {
    return ParameterGroupId(in_lane.value() * ranks + lane);
  }
  /// Returns the index in groups() of the group of the rank's worker. A lane has `num_groups` groups.
  [[nodiscard]] ParameterGroupId tensor_group(RankId rank, std::size_t num_groups) const {
    return ParameterGroupId(static_cast<std::int64_t>(num_groups) * ranks + in_lane(rank).value());
  }
  /// Converts pairs of ranks in a lane to pairs in the whole run, one per lane.
  [[nodiscard]] std::vector<RankPair> pairs(const std::vector<RankPair>& of_lane) const;
};

/// The transport of one lane: messages, gradient sums and all-gathers are between ranks of the lane, which are numbered
/// as in RankLayout. Only sums of numbers (all_sum(), sum_to_host()) add over all ranks of all lanes. Borrows `all`.
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

/// Sums and exchanges between the T ranks of a worker. Borrows the transport of all ranks.
class RankTensorGroup final : public TensorGroup {
 public:
  /// `group` is the result of TensorRanks::tensor_group(). `cuts_tokens`: whether each rank has only 1/T of the tokens
  /// outside of split layers (sequence parallelism). `scatters`: whether sum_own_share() uses a reduce-scatter, which
  /// sends 1/T of the bytes of exchange() between devices. If false, sum_own_share() returns an undefined tensor, and
  /// the caller uses exchange().
  RankTensorGroup(Transport& all, const TensorPlace& place, ParameterGroupId group, bool cuts_tokens = false,
                  bool scatters = false)
      : TensorGroup(place, cuts_tokens), all_(all), group_(group), scatters_(scatters) {}

  void sum(const at::Tensor& values) override {
    const TimeMark begin(values.device());
    all_.sum_in_op(group_, values.view({-1}));
    note(begin, values.device());
  }
  std::vector<at::Tensor> exchange(const at::Tensor& values) override {
    const TimeMark begin(values.device());
    std::vector<at::Tensor> parts = parts_of(values);
    note(begin, values.device());
    return parts;
  }
  at::Tensor sum_own_share(const at::Tensor& values) override;
  /// Returns the seconds of all calls so far, with the waits for the other ranks; on a device, of the calls before the
  /// last read_seconds().
  [[nodiscard]] double seconds() const { return seconds_; }
  /// Call it when the host has waited for the device.
  void read_seconds() { work_.read(); }

 private:
  void note(const TimeMark& begin, at::Device device) {
    work_.note(begin, device, [this](double seconds) { seconds_ += seconds; });
  }
  std::vector<at::Tensor> parts_of(const at::Tensor& values);

  Transport& all_;
  ParameterGroupId group_;
  bool scatters_;
  double seconds_ = 0;
  TimedWork work_;
};

}  // namespace chimera

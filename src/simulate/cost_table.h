#pragma once

// Times of the ops and messages of one schedule. A CostTable computes them once from a CostModel (costs.h), so that the
// simulators look them up in constant time.

#include <algorithm>
#include <set>

#include "schedule/place_all_reduces.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// How the time and the bytes of an op differ from those of a full micro-batch at its stage on a healthy worker. Both
/// are products of the size of the schedule's micro-batches (Schedule::micro_batch_scale) and the fraction of a
/// micro-batch's time or bytes that the op's slice takes (SliceCosts); for the time, also of the factors of its
/// micro-batch and its worker.
class OpScale {
 public:
  OpScale(const Schedule& schedule, const CostModel& model);

  /// Returns the factor of the op's time.
  [[nodiscard]] double time(const Op& op) const {
    double scale = times_[static_cast<std::size_t>(op.slice)] * work(op.micro_batch);
    if (!workers_.empty()) scale *= workers_[op.replica.index() * stages_ + op.stage.index()];
    return scale;
  }
  /// Returns the factor of the bytes of the op's result.
  [[nodiscard]] double bytes(const Op& op) const { return bytes_[static_cast<std::size_t>(op.slice)]; }
  /// Returns the largest factor of bytes of all slices.
  [[nodiscard]] double most_bytes() const { return std::ranges::max(bytes_); }
  /// Returns the factor of a micro-batch. Each step has the same factors.
  [[nodiscard]] double work(MicroBatchId micro_batch) const {
    return micro_batches_.empty() ? 1 : micro_batches_[micro_batch.index() % micro_batches_.size()];
  }
  /// Returns whether the factors of micro-batches may differ.
  [[nodiscard]] bool has_unequal_work() const { return !micro_batches_.empty(); }

 private:
  std::size_t stages_;
  std::vector<double> times_;          // [slice]
  std::vector<double> bytes_;          // [slice]
  std::vector<double> micro_batches_;  // [micro-batch of a step], or empty
  std::vector<double> workers_;        // [replica][stage], or empty
};

/// Times of the ops and messages of one schedule. Ops scale as OpScale::time(), messages and their copies as
/// OpScale::bytes(); delays, all-reduces and updates do not scale. All times are in the unit of the CostModel. `made`
/// is an op whose result is sent; it must have a receiver. Keeps no references to schedule and model.
class CostTable {
 public:
  /// Throws ConfigError, naming the value, if a cost is invalid: for example negative or not finite, in a list of the
  /// wrong length, or for all-reduces between the workers of an asynchronous schedule.
  CostTable(const Schedule& schedule, const CostModel& model);

  /// Returns the time that an op occupies its worker, without copies of messages (LinkCosts::copies).
  [[nodiscard]] double own_duration(const Op& op) const {
    return durations_[op.stage.index() * kOpKinds + static_cast<std::size_t>(op.kind)] * scale_.time(op) +
           recomputation(op);
  }
  /// Returns the time that an op occupies its worker.
  [[nodiscard]] double duration(const Op& op) const { return own_duration(op) + copies(op); }
  /// Returns the part of the op's duration that is recomputation; it can run before the gradient arrives.
  [[nodiscard]] double recomputation(const Op& op) const {
    if (recomputations_.empty() || !gives_input_gradient(op.kind)) return 0;
    return recomputations_[op.stage.index()] * scale_.time(op);
  }
  /// Returns the stages whose activations are copied to host memory (OffloadCosts::bytes above 0).
  [[nodiscard]] const std::set<StageId>& offloaded_stages() const { return offloaded_; }
  /// Returns the time of one copy of a forward's activations, to host memory or back. Its stage must be offloaded.
  [[nodiscard]] double offload(const Op& forward) const {
    return offloads_[forward.stage.index()] * scale_.bytes(forward);
  }
  /// Returns Together if the model has a time of pairs (CostModel::pair) and the schedule has pairs.
  [[nodiscard]] Pairs pairs() const { return pair_ ? Pairs::Together : Pairs::InOrder; }
  /// duration() and recomputation() of one op, or of two ops that run together as a pair.
  [[nodiscard]] double duration(std::span<const Op> at_once) const {
    return at_once.size() == 1 ? duration(at_once.front()) : duration_together(at_once);
  }
  [[nodiscard]] double recomputation(std::span<const Op> at_once) const {
    double again = 0;
    for (const Op& op : at_once) again += recomputation(op);
    return again;
  }
  /// Returns a lower bound of the time that an op occupies its worker, whether alone or in a pair.
  [[nodiscard]] double least_duration(const Op& op) const;
  /// Returns how long a message occupies its link. It arrives delay() later.
  [[nodiscard]] double link_time(const Op& made) const {
    return link_times_.empty() ? 0 : link_times_[message_index(made)] * scale_.bytes(made);
  }
  /// Returns the time from when a message leaves its link until it arrives.
  [[nodiscard]] double delay(const Op& made) const { return delays_.empty() ? delay_ : delays_[message_index(made)]; }
  /// Returns how much earlier a message arrives if its link was idle before (LinkCosts::bursts).
  [[nodiscard]] double burst(const Op& made) const {
    return bursts_.empty() ? 0 : bursts_[message_index(made)] * scale_.bytes(made);
  }
  /// Returns the shortest possible time from send to arrival.
  [[nodiscard]] double message_time(const Op& made) const {
    return std::max(0.0, link_time(made) - burst(made)) + delay(made);
  }
  /// Returns whether messages occupy links, links differ, or sends block. If not, each message just takes the same
  /// delay.
  [[nodiscard]] bool has_traffic() const { return !link_times_.empty() || !delays_.empty() || blocking_sends_; }
  [[nodiscard]] bool blocking_sends() const { return blocking_sends_; }
  [[nodiscard]] bool steps_overlap() const { return steps_overlap_; }
  /// Returns the duration of the group's all-reduce; 0 if a single worker holds the group.
  [[nodiscard]] double all_reduce(ParameterGroupId group) const {
    return all_reduces_.empty() ? 0 : all_reduces_[group.index()];
  }
  /// Returns whether CostModel::all_reduce is set.
  [[nodiscard]] bool has_all_reduces() const { return !all_reduces_.empty(); }
  /// Returns the time of the stage's update on a worker.
  [[nodiscard]] double optimizer(StageId stage) const { return optimizer_.empty() ? 0 : optimizer_[stage.index()]; }
  /// Returns [worker]: the duration of its optimizer step, over all its stages.
  [[nodiscard]] std::vector<double> updates(const Schedule& schedule) const;
  /// Returns the options for place_all_reduces().
  [[nodiscard]] const AllReduceOptions& sums() const { return sums_; }

  [[nodiscard]] std::int64_t slices() const { return slices_; }
  [[nodiscard]] const OpScale& scale() const { return scale_; }

 private:
  [[nodiscard]] double duration_together(std::span<const Op> pair) const;
  [[nodiscard]] double copies(const Op& op) const {
    if (copies_.empty() || op.kind == OpKind::BackwardWeight) return 0;
    const std::size_t stage = op.replica.index() * stages_ + op.stage.index();
    return copies_[2 * stage + (op.kind == OpKind::Forward ? 0 : 1)] * scale_.bytes(op);
  }
  [[nodiscard]] std::size_t message_index(const Op& made) const {
    const bool onward = made.kind == OpKind::Forward;
    const std::size_t boundary = made.stage.index() - (onward ? 0 : 1);
    if (delays_.empty()) return boundary;
    const std::size_t boundaries = stages_ - 1;
    return 2 * (made.replica.index() * boundaries + boundary) + (onward ? 0 : 1);
  }
  void add_offloads(const OffloadCosts& costs);
  void add_links(const Schedule& schedule, const LinkCosts& links);
  void add_copies(const Schedule& schedule, const LinkCosts& links);
  void add_matrix(const Schedule& schedule, const LinkCosts& links);

  std::size_t stages_;
  std::int64_t slices_;
  OpScale scale_;
  std::vector<double> durations_;       // [stage][kind], of a full micro-batch
  std::vector<double> recomputations_;  // [stage], or empty
  // [boundary], or [replica][boundary][forward, backward] as delays_; or empty
  std::vector<double> link_times_;
  std::vector<double> delays_;       // [replica][boundary][forward, backward]; empty: delay_
  std::vector<double> bursts_;       // [boundary], or empty
  std::vector<double> copies_;       // [replica][stage][forward, backward]
  std::vector<double> all_reduces_;  // [parameter group]
  AllReduceOptions sums_;
  std::set<StageId> offloaded_;
  std::vector<double> offloads_;  // [stage]; empty: nothing is offloaded
  std::vector<double> optimizer_;
  std::optional<double> pair_;  // only if the schedule has pairs
  double delay_ = 0;
  bool blocking_sends_;
  bool steps_overlap_;
};

}  // namespace chimera

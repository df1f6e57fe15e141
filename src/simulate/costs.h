#pragma once

// The input of the simulator besides the schedule: times and bytes of ops, messages, all-reduces and updates. Times are
// in any unit. A CostModel has numbers for each stage; they come from flags, files or the planner. A CostTable computes
// from it, for one schedule, the time of each op and message with its slice, its link and the size of its micro-batch,
// so that the simulator looks them up in constant time. S is the number of stages.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "schedule/activations.h"
#include "schedule/place_all_reduces.h"
#include "schedule/schedule.h"

namespace chimera {

/// Durations of a stage's ops for a full micro-batch (not halved or sliced by the schedule). A backward (B) may be
/// split into an input gradient (I) and a weight gradient (W).
struct StageCosts {
  double forward = 1;
  double backward = 1;         // B
  double input_gradient = 1;   // I
  double weight_gradient = 1;  // W
  [[nodiscard]] double of(OpKind kind) const;
};
inline constexpr auto kStageTimes = std::to_array<double StageCosts::*>(
    {&StageCosts::forward, &StageCosts::backward, &StageCosts::input_gradient, &StageCosts::weight_gradient});
inline double StageCosts::of(OpKind kind) const {
  return this->*kStageTimes[static_cast<std::size_t>(kind)];  // in the order of OpKind
}

/// Alpha and beta of messages between each pair of workers, [from][to]. The diagonal is ignored.
struct LinkMatrix {
  std::vector<std::vector<double>> alphas = {};
  std::vector<std::vector<double>> betas = {};  // empty: all 0
  [[nodiscard]] bool needs_bytes() const { return !betas.empty(); }
};

/// Times of messages. A message of L bytes occupies its link for beta L (or for `seconds`, if set), and arrives alpha
/// later. Index s of the vectors is the boundary between stages s and s+1, in both directions.
struct LinkCosts {
  double alpha = 0;                  // time
  double beta = 0;                   // time per byte
  std::vector<double> bytes = {};    // [S - 1], of a full micro-batch
  std::vector<double> seconds = {};  // [S - 1]: measured times that replace beta L; empty: none
  /// [S - 1], or empty: compute time of a full micro-batch's message at the sender and again at the receiver, such as
  /// copies through host memory. It is part of the ops that produce and consume the message.
  std::vector<double> copies = {};
  /// [S - 1], or empty: bursts as times. If the link was idle for at least this time, a message arrives earlier by it,
  /// but still occupies the link for its whole time (token bucket). Workers of a node share the burst of its interface
  /// (SharedCores::nodes). Ignored with `matrix`.
  std::vector<double> bursts = {};
  std::optional<LinkMatrix> matrix = std::nullopt;  // replaces alpha and beta
  /// Returns [S - 1]: how long a full micro-batch's message occupies its link. Does not use alpha and `matrix`.
  [[nodiscard]] std::vector<double> times() const;
};

/// Times of the all-reduces of gradients. An all-reduce over r workers takes `seconds` if measured, else 2 log2(r)
/// alpha + 2 (r-1)/r beta bytes (Rabenseifner's algorithm as in Li and Hoefler, SC'21, section 3.4).
struct AllReduceCosts {
  double alpha = 0;                  // time
  double beta = 0;                   // time per byte
  std::vector<double> bytes = {};    // [S], of the stage's gradients
  std::vector<double> seconds = {};  // [S]: measured times; empty: none
  std::int64_t data_parallel = 1;    // groups; r is this times the number of workers of a group that hold the stage
  // Bytes of the gradients of the tied matrix (or the time of their all-reduce, if `seconds` is set); the workers of
  // the first and the last stage hold it. Empty: no tied matrix.
  std::optional<double> tied = std::nullopt;
  bool reduce_scatter = false;  // whether it is a reduce-scatter, which takes half the time; not with `seconds`
  bool every_stage = false;     // whether stages with r = 1 have an all-reduce too, which takes no time
};

/// Lifetime of message buffers per channel (ordered pair of workers). The turn of a message comes when its tensor is
/// made (passes/lower.h).
struct MessageBuffers {
  std::int64_t receives_ahead = 0;  // a receive is allocated this many messages ahead of its turn
  // a sent tensor is freed once this many later ones are produced, or the worker's ops end
  std::int64_t sends_behind = 0;
};

/// How the slices of a micro-batch divide its time and bytes. Later slices take longer, because they attend to more
/// tokens. A slice of the tokens from x to y (fractions of the sequence) takes (1 - a) (y - x) + a (y^2 - x^2) of the
/// op's time, and y - x of its bytes.
struct SliceCosts {
  double attention = 0;             // a: fraction of an op's time that is attention, for a whole micro-batch, 0 to 1
  std::vector<double> bounds = {};  // [slices + 1], ascending from 0 to 1; empty: balanced_bounds()
  friend bool operator==(const SliceCosts&, const SliceCosts&) = default;
};

/// Returns [slices]: the fraction of the tokens in each slice. SliceCosts::bounds must be for so many slices, or empty.
[[nodiscard]] std::vector<double> parts_of_tokens(const SliceCosts& costs, std::int64_t slices);

/// Returns [slices]: the fraction of an op's time of each slice. SliceCosts::bounds must be for so many slices, or
/// empty.
[[nodiscard]] std::vector<double> parts_of_time(const SliceCosts& costs, std::int64_t slices);

/// Copies of activations to host memory and back.
struct OffloadCosts {
  double beta = 0;                 // time per byte, in each direction
  std::vector<double> bytes = {};  // [S], of a full micro-batch; 0: the stage is not offloaded
};

/// All costs of a pipeline, by stage.
struct CostModel {
  std::vector<StageCosts> stages;  // [S]
  double latency = 0;  // delay of each message to another worker, in addition to alpha; any number may be in flight
  // Time of a pair of ops that overlap, as a fraction of the sum of their times; a pair takes at least as long as its
  // longer op. Empty: pairs do not overlap
  std::optional<double> pair = std::nullopt;
  std::optional<LinkCosts> links = std::nullopt;            // empty: messages take only `latency`
  std::optional<AllReduceCosts> all_reduce = std::nullopt;  // empty: no all-reduces
  std::vector<double> optimizer = {};                       // [S], update of the stage on a worker; empty: no time
  // [S], time of recomputation before each backward (B or I); it can start before the gradient arrives. Empty or 0:
  // none
  std::vector<double> recompute = {};
  std::optional<OffloadCosts> offload = std::nullopt;  // empty: nothing is offloaded
  std::vector<StageMemory> memory = {};                // [S]; empty: bytes are unknown, and memory counts micro-batches
  MessageBuffers buffers = {};                         // used with `memory`
  AllReducePlacement all_reduce_placement = AllReducePlacement::EagerOpt;
  bool blocking_sends = false;  // whether a worker waits until each message that it sends has arrived
  SliceCosts slices = {};       // used if the schedule has several slices
  // [worker]: factor of its ops' times, 1 if healthy; empty: 1
  std::vector<double> workers = {};
  // [micro-batch of a step]: factor of its ops' times, 1 for an average one; empty: 1
  std::vector<double> micro_batches = {};

  /// Returns equal costs for all stages. `share` has the times of 1/D of the model; with S stages on D workers, a stage
  /// takes D/S of them.
  [[nodiscard]] static CostModel uniform(const Schedule& schedule, const StageCosts& share, double latency = 0);
};

/// Returns D/S: a stage is 1/S of the model, and this is its size relative to 1/D of the model.
[[nodiscard]] double stage_fraction(const Schedule& schedule);

/// How the time and the bytes of an op differ from those of a full micro-batch at its stage on a healthy worker. Both
/// are products of the size of the schedule's micro-batches (Schedule::micro_batch_scale) and the share of the op's
/// slice; for the time, also of the factors of its micro-batch and its worker.
class OpScale {
 public:
  OpScale(const Schedule& schedule, const CostModel& model);

  [[nodiscard]] double time(const Op& op) const {
    double scale = times_[static_cast<std::size_t>(op.slice)] * work(op.micro_batch);
    if (!workers_.empty()) scale *= workers_[op.replica.index() * stages_ + op.stage.index()];
    return scale;
  }
  [[nodiscard]] double bytes(const Op& op) const { return bytes_[static_cast<std::size_t>(op.slice)]; }
  [[nodiscard]] double most_bytes() const { return std::ranges::max(bytes_); }
  /// Returns the factor of a micro-batch. Each step has the same factors.
  [[nodiscard]] double work(MicroBatchId micro_batch) const {
    return micro_batches_.empty() ? 1 : micro_batches_[micro_batch.index() % micro_batches_.size()];
  }
  [[nodiscard]] bool has_unequal_work() const { return !micro_batches_.empty(); }

 private:
  std::size_t stages_;
  std::vector<double> times_;          // [slice]
  std::vector<double> bytes_;          // [slice]
  std::vector<double> micro_batches_;  // [micro-batch of a step], or empty
  std::vector<double> workers_;        // [replica][stage], or empty
};

/// Times of the ops and messages of one schedule. Ops scale as OpScale::time(), messages and their copies as
/// OpScale::bytes(); delays, all-reduces and updates do not scale. `made` is the op whose result is sent.
class CostTable {
 public:
  /// Throws ConfigError, naming the value, if a cost is negative or not finite, a list has the wrong length, or an
  /// asynchronous schedule has all-reduces between workers.
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
  [[nodiscard]] const std::set<StageId>& offloaded_stages() const { return offloaded_; }
  /// Returns the time of one copy of a forward's activations, to host memory or back. Its stage must be offloaded.
  [[nodiscard]] double offload(const Op& forward) const {
    return offloads_[forward.stage.index()] * scale_.bytes(forward);
  }
  [[nodiscard]] Pairs pairs() const { return pair_ ? Pairs::Together : Pairs::InOrder; }
  /// Return the same times of one op, or of a pair of ops that run together.
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
  /// Returns the duration of the group's all-reduce; 0 if a single worker holds the group.
  [[nodiscard]] double all_reduce(ParameterGroupId group) const {
    return all_reduces_.empty() ? 0 : all_reduces_[group.index()];
  }
  [[nodiscard]] bool has_all_reduces() const { return !all_reduces_.empty(); }
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
};

}  // namespace chimera

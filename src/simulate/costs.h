#pragma once

// What a schedule's ops, messages, all-reduces and updates cost, in any one unit of time and in bytes. A CostModel is
// what users, files and plans give: numbers per stage. A CostTable prepares it for one schedule, so that the simulator
// looks up each op in constant time, with its slice, its links and the size of its micro-batch.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "schedule/place_all_reduces.h"
#include "schedule/schedule.h"

namespace chimera {

/// Durations of a stage's ops on a full micro-batch.
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

/// Alpha and beta of messages by link, [from][to]. The diagonal is ignored.
struct LinkMatrix {
  std::vector<std::vector<double>> alphas = {};
  std::vector<std::vector<double>> betas = {};  // empty: all 0
  [[nodiscard]] bool needs_bytes() const { return !betas.empty(); }
};

/// A message of L bytes takes alpha + beta L, or alpha + `seconds` if measured. It occupies its link except during
/// alpha, a pure delay.
struct LinkCosts {
  double alpha = 0;
  double beta = 0;
  std::vector<double> bytes = {};    // [S - 1], of a full micro-batch between stages s and s+1, either way
  std::vector<double> seconds = {};  // [S - 1], or empty
  /// [S - 1], or empty: compute time of a full micro-batch's message at the sender and again at the receiver, such as
  /// copies through host memory. It is part of the ops that produce and consume the message.
  std::vector<double> copies = {};
  /// [S - 1], or empty: part of the link time that a message skips after its link was idle that long. The link stays
  /// busy for it. Workers on a node share their interface's burst (SharedCores::nodes). Ignored with `matrix`.
  std::vector<double> bursts = {};
  std::optional<LinkMatrix> matrix = std::nullopt;  // replaces alpha and beta
  /// Returns the time of a full micro-batch over each boundary, without alpha and matrix.
  [[nodiscard]] std::vector<double> times() const;
};

/// All-reduce of a stage's gradients over r copies: `seconds` if measured, else 2 log2(r) alpha + 2 (r-1)/r beta bytes
/// (Rabenseifner's algorithm as in Li and Hoefler, SC'21, section 3.4). With `reduce_scatter` only its first half.
struct AllReduceCosts {
  double alpha = 0;
  double beta = 0;
  std::vector<double> bytes = {};    // [S], of the stage's gradients
  std::vector<double> seconds = {};  // [S], or empty
  std::int64_t data_parallel = 1;    // W: r is W times the workers that hold the stage
  // bytes or seconds of the tied matrix's gradients, a stage S of the workers that hold stage 0 or S-1
  std::optional<double> tied = std::nullopt;
  bool reduce_scatter = false;  // not with `seconds`, which are of the operation that was measured
  bool every_stage = false;     // include all-reduces over a single worker, which take no time
};

/// Bytes of a stage; activations, boundary and deferred are per full micro-batch.
struct StageMemory {
  double weights = 0;  // bytes of one version of a copy
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  // bytes held from the forward to the end of B or I, with input and output
  // the stage's input: size of a message, and what recomputation keeps
  double boundary = 0;
  std::optional<double> deferred = std::nullopt;  // activations that W needs after I; empty: all
  // with several slices also held as long as `activations`: keys and values for the next slices, and their gradients
  double keys_and_values = 0;
};

/// Lifetime of message buffers per channel (ordered pair of workers).
struct MessageBuffers {
  std::int64_t receives_ahead = 0;  // a receive is allocated this many messages ahead of its turn
  // a sent tensor is freed once this many later ones are produced, or the worker's ops end
  std::int64_t sends_behind = 0;
};

/// Costs of slices. A slice of the tokens from x to y (fractions of the micro-batch) takes (1 - a) (y - x) + a (y^2 -
/// x^2) of the op's time, and y - x of its bytes.
struct SliceCosts {
  double attention = 0;             // a: attention's part of an op's time on a whole micro-batch, 0 to 1
  std::vector<double> bounds = {};  // [k + 1], ascending from 0 to 1; empty: equal times, see balanced_bounds()
  friend bool operator==(const SliceCosts&, const SliceCosts&) = default;
};

/// Returns [k + 1]: bounds of slices with equal times, the solutions x of (1 - a) x + a x^2 = j / k.
[[nodiscard]] std::vector<double> balanced_bounds(std::int64_t slices, double attention);

/// Returns [k]: each slice's part of the tokens. Requires bounds of k slices, or none.
[[nodiscard]] std::vector<double> parts_of_tokens(const SliceCosts& costs, std::int64_t slices);

/// Returns [k]: each slice's part of an op's time. Requires bounds of k slices, or none.
[[nodiscard]] std::vector<double> parts_of_time(const SliceCosts& costs, std::int64_t slices);

/// Copies of activations to host memory and back: `beta` per byte, each way.
struct OffloadCosts {
  double beta = 0;
  std::vector<double> bytes = {};  // [S], of a full micro-batch; 0: the stage is not offloaded
};

struct CostModel {
  std::vector<StageCosts> stages;  // [S]
  double latency = 0;              // delay of a message to another worker; any number may be in flight
  // time of a pair, as a fraction of its ops' sum; at least the longer op. Empty: in order
  std::optional<double> pair = std::nullopt;
  std::optional<LinkCosts> links = std::nullopt;
  std::optional<AllReduceCosts> all_reduce = std::nullopt;  // empty: no all-reduces
  std::vector<double> optimizer = {};                       // [S], update of a copy of the stage; empty: no time
  // [S], recomputation before each B or I; it can precede the gradient's arrival. Empty or 0: none
  std::vector<double> recompute = {};
  std::optional<OffloadCosts> offload = std::nullopt;
  std::vector<StageMemory> memory = {};  // [S]; empty: memory is counted in stage units
  MessageBuffers buffers = {};           // used with `memory`
  AllReducePlacement all_reduce_placement = AllReducePlacement::EagerOpt;
  bool blocking_sends = false;  // whether a worker waits until its message has arrived
  SliceCosts slices = {};       // used if the schedule has several slices

  /// Returns equal costs for all stages: each op costs D/S of `share`, a worker's time for a full micro-batch (S stages
  /// on D workers).
  [[nodiscard]] static CostModel uniform(const Schedule& schedule, const StageCosts& share, double latency = 0);
};

/// Returns D/S, a stage's fraction of a worker's share of the model.
[[nodiscard]] double share_of_stage(const Schedule& schedule);

/// Costs of a schedule's ops. Ops and bytes scale with the micro-batch size (micro_batch_scale) and the slice; delays,
/// all-reduces and updates do not.
class CostTable {
 public:
  /// Throws ConfigError, naming the value, if a cost is negative or not finite, a list has the wrong length, or an
  /// asynchronous schedule has all-reduces between workers.
  CostTable(const Schedule& schedule, const CostModel& model);

  /// Worker time of an op, without copies of messages.
  [[nodiscard]] double duration(OpKind kind, StageId stage, std::int64_t slice = 0) const {
    return durations_[cell(stage, slice) * kOpKinds + static_cast<std::size_t>(kind)];
  }
  /// Worker time of an op.
  [[nodiscard]] double duration(const Op& op) const { return duration(op.kind, op.stage, op.slice) + copies(op); }
  /// Recomputation in the op's duration; it can run before the gradient arrives.
  [[nodiscard]] double recomputation(OpKind kind, StageId stage, std::int64_t slice = 0) const {
    return recomputations_.empty() || !gives_input_gradient(kind) ? 0 : recomputations_[cell(stage, slice)];
  }
  [[nodiscard]] double recomputation(const Op& op) const { return recomputation(op.kind, op.stage, op.slice); }
  [[nodiscard]] const std::set<StageId>& offloaded_stages() const { return offloaded_; }
  [[nodiscard]] double offload(const Op& forward) const {
    return offloads_[forward.stage.index()] * part_of_tokens(forward);
  }
  [[nodiscard]] Pairs pairs() const { return pair_ ? Pairs::Together : Pairs::InOrder; }
  /// Times of an op, or of a pair that runs together.
  [[nodiscard]] double duration(std::span<const Op> at_once) const {
    return at_once.size() == 1 ? duration(at_once.front()) : duration_together(at_once);
  }
  [[nodiscard]] double recomputation(std::span<const Op> at_once) const {
    double again = 0;
    for (const Op& op : at_once) again += recomputation(op);
    return again;
  }
  /// Lower bound on the op's worker time, alone or in a pair.
  [[nodiscard]] double least_duration(const Op& op) const;
  /// Time that the result's message occupies its link, and its delay after that.
  [[nodiscard]] double link_time(const Op& made) const {
    return link_times_.empty() ? 0 : link_times_[message_index(made)] * part_of_tokens(made);
  }
  [[nodiscard]] double delay(const Op& made) const { return delays_.empty() ? delay_ : delays_[message_index(made)]; }
  /// Part of link_time() that is skipped if the link was idle.
  [[nodiscard]] double burst(const Op& made) const {
    return bursts_.empty() ? 0 : bursts_[message_index(made)] * part_of_tokens(made);
  }
  /// Shortest time from send to arrival.
  [[nodiscard]] double message_time(const Op& made) const {
    return std::max(0.0, link_time(made) - burst(made)) + delay(made);
  }
  /// Whether messages occupy links, links differ, or sends block; otherwise all take one delay.
  [[nodiscard]] bool has_traffic() const { return !link_times_.empty() || !delays_.empty() || blocking_sends_; }
  [[nodiscard]] bool blocking_sends() const { return blocking_sends_; }
  /// Duration of the group's all-reduce; 0 with one holder.
  [[nodiscard]] double all_reduce(ParameterGroupId group) const {
    return all_reduces_.empty() ? 0 : all_reduces_[group.index()];
  }
  [[nodiscard]] bool has_all_reduces() const { return !all_reduces_.empty(); }
  [[nodiscard]] double optimizer(StageId stage) const { return optimizer_.empty() ? 0 : optimizer_[stage.index()]; }
  /// [worker]: duration of its update.
  [[nodiscard]] std::vector<double> updates(const Schedule& schedule) const;
  [[nodiscard]] const AllReduceOptions& sums() const { return sums_; }

  [[nodiscard]] std::int64_t slices() const { return slices_; }

 private:
  [[nodiscard]] std::size_t cell(StageId stage, std::int64_t slice) const {
    return static_cast<std::size_t>(slice) * stages_ + stage.index();
  }
  [[nodiscard]] double part_of_tokens(const Op& op) const {
    return parts_of_tokens_.empty() ? 1 : parts_of_tokens_[static_cast<std::size_t>(op.slice)];
  }
  [[nodiscard]] double duration_together(std::span<const Op> pair) const;
  [[nodiscard]] double copies(const Op& op) const {
    if (copies_.empty() || op.kind == OpKind::BackwardWeight) return 0;
    const std::size_t stage = op.replica.index() * stages_ + op.stage.index();
    return copies_[2 * stage + (op.kind == OpKind::Forward ? 0 : 1)] * part_of_tokens(op);
  }
  [[nodiscard]] std::size_t message_index(const Op& made) const {
    const bool onward = made.kind == OpKind::Forward;
    const std::size_t boundary = made.stage.index() - (onward ? 0 : 1);
    if (delays_.empty()) return boundary;
    const std::size_t boundaries = stages_ - 1;
    return 2 * (made.replica.index() * boundaries + boundary) + (onward ? 0 : 1);
  }
  void add_durations(const CostModel& model, double scale);
  void add_offloads(const OffloadCosts& costs, double scale);
  void add_links(const Schedule& schedule, const LinkCosts& links);
  void add_copies(const Schedule& schedule, const LinkCosts& links);
  void add_matrix(const Schedule& schedule, const LinkCosts& links);

  std::size_t stages_;
  std::int64_t slices_;
  std::vector<double> parts_of_tokens_;  // [slice]; empty: 1
  std::vector<double> durations_;        // [slice][stage][kind]
  std::vector<double> recomputations_;   // [slice][stage], or empty
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

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schedule/place_all_reduces.h"
#include "schedule/schedule.h"

// What ops, messages, sums of gradients and weight updates cost, in any one unit of time.

// Costs as JSON. The grammar stands in docs/schedule_format.md.

namespace chimera {

/// Durations of one stage's ops on a full micro-batch.
struct StageCosts {
  double forward = 1;
  double backward = 1;         // a whole B
  double input_gradient = 1;   // I
  double weight_gradient = 1;  // W
  [[nodiscard]] double of(OpKind kind) const;
};

/// Links of several kinds: [from][to], alpha and beta of a message from one worker to another. Entries from a worker to
/// itself count for nothing.
struct LinkMatrix {
  std::vector<std::vector<double>> alphas = {};
  std::vector<std::vector<double>> betas = {};  // empty: 0 each
  [[nodiscard]] bool needs_bytes() const { return !betas.empty(); }
};

/// A point-to-point message of L bytes takes alpha + beta L; or alpha + `seconds`, where links are of several kinds or
/// measured. For all but alpha it has the link from sender to receiver to itself; alpha is pure delay, with any number
/// of messages in flight.
struct LinkCosts {
  double alpha = 0;
  double beta = 0;
  std::vector<double> bytes = {};    // [S - 1], of a full micro-batch between stages s and s+1, either way
  std::vector<double> seconds = {};  // [S - 1], or empty
  /// [S - 1], or empty: what a full micro-batch's message takes of its sender's compute, and again of its receiver's,
  /// as where it is copied through the host's memory. It counts as time of the op that makes it, and of the op that
  /// needs it once it has arrived.
  std::vector<double> copies = {};
  /// [S - 1], or empty: the part of its time on the link that a message need not wait for, where the link was idle as
  /// long before; the link is busy for it all the same. Of nodes whose transfers divide an interface (Contention), the
  /// interface lets so much pass, whatever leaves it. Where there is no matrix.
  std::vector<double> bursts = {};
  std::optional<LinkMatrix> matrix = std::nullopt;  // in place of alpha and beta
  /// The time of a full micro-batch over each boundary, without alpha, where there is no matrix.
  [[nodiscard]] std::vector<double> times() const;
};

/// Summing a stage's gradients over its r copies: `seconds` where they are measured, else 2 log2(r) alpha +
/// 2 (r-1)/r beta bytes (Rabenseifner's algorithm, as Li and Hoefler, SC'21, section 3.4, count it).
struct AllReduceCosts {
  double alpha = 0;
  double beta = 0;
  std::vector<double> bytes = {};    // [S], of the stage's gradients
  std::vector<double> seconds = {};  // [S], or empty
  std::int64_t data_parallel = 1;    // W, groups of workers that train alike: r = W times the workers holding the stage
  std::optional<double> tied = std::nullopt;  // of a tied model: bytes of its matrix's gradients, or seconds; it counts
                                              // as a stage S of those workers that hold stage 0 or S-1
  bool every_stage = false;  // stages that one worker holds are summed, too, for no time (AllReduceOptions)
};

/// Bytes of one stage's tensors; the last three are those of a full micro-batch.
struct StageMemory {
  double weights = 0;  // one version of one copy
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  // from its forward until its backward (B, or I), input and output included
  double boundary = 0;     // its input: what a message to it holds, and what recomputation keeps of the activations
  std::optional<double> deferred = std::nullopt;  // what W needs: kept of the activations from I to W; none: all
};

/// Memory of messages beyond their time on the way, on each channel (a directed pair of workers): what lowering asks
/// for.
struct MessageBuffers {
  std::int64_t receives_ahead = 0;  // a receive has its memory from the turn of the message so many before it on
  std::int64_t sends_behind = 0;    // a sent tensor is freed once so many later ones are made, or the worker's ops end
};

struct CostModel {
  std::vector<StageCosts> stages;             // one for each stage of the schedule
  double latency = 0;                         // of a message to another worker: pure delay, any number in flight
  std::optional<double> pair = std::nullopt;  // what the ops of a pair take together, as a part of what they take one
                                              // after the other, but no less than the longer; none: they run in order
  std::optional<LinkCosts> links = std::nullopt;
  std::optional<AllReduceCosts> all_reduce = std::nullopt;  // none: gradients are not summed
  std::vector<double> optimizer = {};                       // [S], updating one copy of the stage; empty: no time
  std::vector<double> recompute = {};                       // [S], recomputation before each B or I, which does not
                                                            // need the op's gradient; empty, 0: none
  std::vector<StageMemory> memory = {};                     // [S]; empty: memory is counted in stage units
  MessageBuffers buffers = {};                              // with memory
  AllReducePlacement all_reduce_placement = AllReducePlacement::EagerOpt;
  bool blocking_sends = false;  // whether a worker waits until what it sends has arrived

  /// Every stage alike. `share` is the time of one worker's whole share of the model for a full micro-batch: with S
  /// stages on D workers an op costs D/S of it.
  [[nodiscard]] static CostModel uniform(const Schedule& schedule, const StageCosts& share, double latency = 0);
};

/// What a worker's share of the model (the unit of memory, and of `uniform`) has to do with a stage: D/S.
[[nodiscard]] double share_of_stage(const Schedule& schedule);

/// The costs of one schedule's own ops: a micro-batch of a part of the full size costs that part, its bytes too;
/// delays, all-reduces and updates do not depend on it.
class CostTable {
 public:
  /// Throws ConfigError where a cost is negative or not finite, or a list has not one entry for each stage (of `bytes`
  /// of the links: for each boundary; of a link matrix: for each worker), naming it; and for all-reduces between
  /// several workers in an asynchronous schedule.
  CostTable(const Schedule& schedule, const CostModel& model);

  /// What ops of that kind and stage take of their workers' time, recomputation included, copies of messages not.
  [[nodiscard]] double duration(OpKind kind, StageId stage) const {
    return durations_[stage.index() * kOpKinds + static_cast<std::size_t>(kind)];
  }
  /// The same with the copies of its messages: all that the op takes.
  [[nodiscard]] double duration(const Op& op) const { return duration(op.kind, op.stage) + copies(op); }
  /// The part of it in which the op's forward runs again: before it, while its gradient may still be on its way.
  [[nodiscard]] double recomputation(OpKind kind, StageId stage) const {
    return recomputations_.empty() || !gives_input_gradient(kind) ? 0 : recomputations_[stage.index()];
  }
  [[nodiscard]] double recomputation(const Op& op) const { return recomputation(op.kind, op.stage); }
  /// How the schedule's pairs run; in order where it has none.
  [[nodiscard]] Pairs pairs() const { return pair_ ? Pairs::Together : Pairs::InOrder; }
  /// What one op, or a pair that runs together, takes of its worker's time; and the recomputation before it.
  [[nodiscard]] double duration(std::span<const Op> at_once) const;
  [[nodiscard]] double recomputation(std::span<const Op> at_once) const;
  /// The least that the op takes of its worker's time: where the schedule has pairs that run together, its part of one.
  [[nodiscard]] double least_duration(const Op& op) const;
  /// How long the result of the op, which another stage needs, takes on its link, and how long it is on its way after.
  [[nodiscard]] double link_time(const Op& made) const {
    return link_times_.empty() ? 0 : link_times_[message_index(made)];
  }
  [[nodiscard]] double delay(const Op& made) const { return delays_.empty() ? delay_ : delays_[message_index(made)]; }
  /// How much sooner than its time on the link is over the result has left it, where it was idle before.
  [[nodiscard]] double burst(const Op& made) const { return bursts_.empty() ? 0 : bursts_[message_index(made)]; }
  /// The least that a message takes: its time on the link and the delay.
  [[nodiscard]] double message_time(const Op& made) const {
    return std::max(0.0, link_time(made) - burst(made)) + delay(made);
  }
  /// Whether messages occupy links, are of several kinds or hold up their senders; else all arrive one delay later.
  [[nodiscard]] bool has_traffic() const { return !link_times_.empty() || !delays_.empty() || blocking_sends_; }
  [[nodiscard]] bool blocking_sends() const { return blocking_sends_; }
  /// Time of the sum of the group's gradients; 0 where one worker alone has them.
  [[nodiscard]] double all_reduce(ParameterGroupId group) const {
    return all_reduces_.empty() ? 0 : all_reduces_[group.index()];
  }
  [[nodiscard]] bool has_all_reduces() const { return !all_reduces_.empty(); }
  [[nodiscard]] double optimizer(StageId stage) const { return optimizer_.empty() ? 0 : optimizer_[stage.index()]; }
  /// [worker]: the update of all copies of stages that it holds.
  [[nodiscard]] std::vector<double> updates(const Schedule& schedule) const;
  /// Whether the gradients of a tied matrix are summed, too.
  [[nodiscard]] bool has_tied_matrix() const { return sums_.tied; }
  /// Which gradients are summed, and when workers launch the sums: what a program with these sums is lowered with.
  [[nodiscard]] const AllReduceOptions& sums() const { return sums_; }

 private:
  [[nodiscard]] double copies(const Op& op) const {
    if (copies_.empty() || op.kind == OpKind::BackwardWeight) return 0;
    const std::size_t stage = op.replica.index() * durations_.size() / kOpKinds + op.stage.index();
    return copies_[2 * stage + (op.kind == OpKind::Forward ? 0 : 1)];
  }
  /// The message's place in link_times_ and delays_.
  [[nodiscard]] std::size_t message_index(const Op& made) const {
    const bool onward = made.kind == OpKind::Forward;
    const std::size_t boundary = made.stage.index() - (onward ? 0 : 1);
    if (delays_.empty()) return boundary;
    const std::size_t boundaries = durations_.size() / kOpKinds - 1;
    return 2 * (made.replica.index() * boundaries + boundary) + (onward ? 0 : 1);
  }
  void add_links(const Schedule& schedule, const LinkCosts& links);
  void add_copies(const Schedule& schedule, const LinkCosts& links);
  void add_matrix(const Schedule& schedule, const LinkCosts& links);

  std::vector<double> durations_;       // [stage][kind]
  std::vector<double> recomputations_;  // [stage]; empty without
  std::vector<double> link_times_;      // [boundary], or [replica][boundary][onward, back] as delays_; empty without
                                        // links
  std::vector<double> delays_;          // [replica][boundary][onward, back]; empty: delay_
  std::vector<double> bursts_;          // [boundary]; empty without
  std::vector<double> copies_;          // [replica][stage][forward, gradient]: of what the op needs and what it makes
  std::vector<double> all_reduces_;     // [parameter group]
  AllReduceOptions sums_;
  std::vector<double> optimizer_;
  std::optional<double> pair_;  // of a schedule with pairs
  double delay_ = 0;
  bool blocking_sends_;
};

/// Reads the costs of a model cut into `stages` stages. Throws ConfigError, with the place, for anything outside the
/// grammar: syntax, an unknown or missing field, a wrong type, a negative number or one that is not finite, a list of
/// another length than there are stages (or boundaries between them). `source` names the text in the message.
[[nodiscard]] CostModel costs_from_json(const std::string& text, const std::string& source, std::int64_t stages);

/// Costs in that grammar, numbers with all their digits: what costs_from_json reads as the same costs. What --sync,
/// --blocking-sends and --data-parallel say is not part of it.
[[nodiscard]] std::string costs_to_json(const CostModel& costs);

}  // namespace chimera

#pragma once

// The input of the simulator besides the schedule. A CostModel, at the end, has the costs of all stages; it comes from
// flags, a file (costs_json.h) or the planner. Each of its parts is a struct:
//
//   StageCosts    times of a stage's ops       LinkCosts        times of messages between stages
//   SliceCosts    how slices divide them       AllReduceCosts   times of the sums of gradients
//   StageMemory   bytes (activations.h)        OffloadCosts     times of copies to host memory and back
//   CostModel     all of them                  MessageBuffers   how long messages are kept in memory
//
// All times have one unit, which the user chooses. Times and bytes of ops and messages are those of a full micro-batch:
// CostTable (cost_table.h) scales them for slices, halved micro-batches, and slow workers. S is the number of stages,
// and [S] says that a list has an entry for each. What is left empty costs nothing, unless the field says otherwise.

#include <array>

#include "schedule/activations.h"
#include "schedule/place_all_reduces.h"
#include "schedule/schedule.h"

namespace chimera {

/// Times of a stage's ops. A backward (B) may be split into an input gradient (I) and a weight gradient (W).
struct StageCosts {
  double forward = 1;
  double backward = 1;         // B
  double input_gradient = 1;   // I
  double weight_gradient = 1;  // W
  [[nodiscard]] double of(OpKind kind) const;
};
/// [OpKind]: the member of StageCosts for this kind.
inline constexpr auto kStageTimes = std::to_array<double StageCosts::*>(
    {&StageCosts::forward, &StageCosts::backward, &StageCosts::input_gradient, &StageCosts::weight_gradient});
inline double StageCosts::of(OpKind kind) const {
  return this->*kStageTimes[static_cast<std::size_t>(kind)];  // in the order of OpKind
}

/// Alpha and beta of messages between each pair of workers, [from][to], if they differ. The diagonal is ignored.
struct LinkMatrix {
  std::vector<std::vector<double>> alphas = {};
  std::vector<std::vector<double>> betas = {};  // Empty: all 0
  /// Returns whether times depend on the bytes of messages (LinkCosts::bytes).
  [[nodiscard]] bool needs_bytes() const { return !betas.empty(); }
};

/// Times of messages. A message of L bytes occupies its link for beta L, or for its time in `seconds` if this list is
/// set. It arrives alpha (and CostModel::latency) after it has left the link. Index s of the lists is the boundary
/// between stages s and s+1, in both directions.
struct LinkCosts {
  double alpha = 0;                  // Time
  double beta = 0;                   // Time per byte
  std::vector<double> bytes = {};    // [S - 1], of a message
  std::vector<double> seconds = {};  // [S - 1]: times that replace beta L, such as measured ones
  /// [S - 1]: time that the sender, and again the receiver, computes for a message, such as copies through host memory.
  /// It is part of the ops that make and need the message.
  std::vector<double> copies = {};
  /// [S - 1]: times of bursts. If the link was idle for at least this time, a message arrives earlier by it, but still
  /// occupies the link for its whole time (token bucket). Workers of a node share the burst of its interface
  /// (SharedCores::nodes). Ignored with `matrix`.
  std::vector<double> bursts = {};
  std::optional<LinkMatrix> matrix = std::nullopt;  // Replaces alpha and beta
  /// Returns [S - 1]: how long a message occupies its link. Does not use alpha and `matrix`.
  [[nodiscard]] std::vector<double> times() const;
};

/// Times of the all-reduces of gradients. An all-reduce over r workers takes its time in `seconds`, if this list is
/// set, else 2 log2(r) alpha + 2 (r-1)/r beta bytes (Rabenseifner's algorithm as in Li and Hoefler, SC'21, section
/// 3.4). The lists have an entry for each parameter group: the stages and, if `tied`, then the matrix that the first
/// and the last stage share.
struct AllReduceCosts {
  double alpha = 0;                  // Time
  double beta = 0;                   // Time per byte
  std::vector<double> bytes = {};    // [parameter group], of its gradients
  std::vector<double> seconds = {};  // [parameter group]: times, such as measured ones
  std::int64_t data_parallel = 1;  // Groups; r is this times the number of workers of a group that hold the parameters
  bool tied = false;               // Whether the lists end with a tied matrix
  bool reduce_scatter = false;     // Whether it is a reduce-scatter, which takes half the time; not with `seconds`
  bool every_stage = false;        // Whether stages with r = 1 have an all-reduce too, which takes no time
  /// Returns the number of entries that the lists must have for this number of stages.
  [[nodiscard]] std::int64_t num_groups(std::int64_t stages) const { return stages + (tied ? 1 : 0); }
};

/// How long message buffers are held, counted in messages of a channel (ordered pair of workers). The turn of a message
/// comes when its tensor is made (passes/lower.h).
struct MessageBuffers {
  std::int64_t receives_ahead = 0;  // A receive is allocated this many messages ahead of its turn
  std::int64_t sends_behind = 0;  // A sent tensor is freed when this many later ones are made, or the worker's ops end
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

/// Times of copies of activations to host memory and back.
struct OffloadCosts {
  double beta = 0;                 // Time per byte, in each direction
  std::vector<double> bytes = {};  // [S]; 0: the stage is not offloaded
};

/// All costs of a pipeline.
struct CostModel {
  // Ops
  std::vector<StageCosts> stages;  // [S]
  SliceCosts slices = {};          // If the schedule has several slices
  /// [S]: time of the forward that runs again; it may start before the gradient comes.
  std::vector<double> recompute = {};
  std::optional<double> pair = std::nullopt;  // Time of two ops that overlap, as a fraction of the sum of their times,
                                              // but at least that of the longer op. Empty: pairs do not overlap
  // [worker], or [worker of a group] for all groups: factor of its ops' times, 1 if healthy. Empty: 1
  std::vector<double> workers = {};
  std::vector<double> micro_batches = {};  // [micro-batch of a step]: factor of its ops' times. Empty: 1

  // Messages
  double latency = 0;                             // Delay of each message, in addition to LinkCosts::alpha
  std::optional<LinkCosts> links = std::nullopt;  // Empty: a message takes `latency`, and any number may be in flight
  bool blocking_sends = false;                    // Whether a worker waits until each message that it sends has arrived

  // End of a step
  std::optional<AllReduceCosts> all_reduce = std::nullopt;
  AllReducePlacement all_reduce_placement = AllReducePlacement::EagerOpt;
  std::vector<double> optimizer = {};  // [S]: time of the stage's update on a worker
  // Whether a worker of a synchronous schedule updates as soon as its own ops and all-reduces have ended. It then
  // starts its next step while others end this one.
  bool steps_overlap = false;

  // Memory
  std::vector<StageMemory> memory = {};  // [S]; empty: bytes are unknown, and memory is in stage units
  MessageBuffers buffers = {};           // Used with `memory`
  std::optional<OffloadCosts> offload = std::nullopt;

  /// Returns equal costs for all stages. `share` has the times of 1/D of the model; with S stages on D workers, a stage
  /// takes D/S of them.
  [[nodiscard]] static CostModel uniform(const Schedule& schedule, const StageCosts& share, double latency = 0);
};

/// Returns D/S: a stage is 1/S of the model, and this is its size relative to 1/D of the model.
[[nodiscard]] double stage_fraction(const Schedule& schedule);

}  // namespace chimera

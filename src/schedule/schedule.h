#pragma once
// A schedule is a value: what the paper draws. No tensors, no messages, no idle slots (a bubble is a result of timing).

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/choices.h"
#include "core/ids.h"
#include "schedule/op.h"

namespace chimera {

/// How Chimera runs more micro-batches than it has stages (SC'21, section 3.5).
enum class ScaleMethod : std::uint8_t {
  Direct,    ///< direct concatenation of units of D micro-batches
  Doubling,  ///< two forwards for each backward in the order; units of 2D
  Halving,   ///< the order of doubling, on twice as many micro-batches of half the size
};
template <>
inline constexpr auto kNames<ScaleMethod> = std::to_array<Named<ScaleMethod>>({{ScaleMethod::Direct, "direct"},
                                                                               {ScaleMethod::Doubling, "doubling"},
                                                                               {ScaleMethod::Halving, "halving"}});

/// Which of its rules orders the ops of a schedule that has two.
enum class OpOrder : std::uint8_t {
  Auto,     ///< Deepest for whole units of more than one chunk a worker, else Slots
  Slots,    ///< slots of equal length
  Deepest,  ///< what has come farthest goes first
};
template <>
inline constexpr auto kNames<OpOrder> =
    std::to_array<Named<OpOrder>>({{OpOrder::Auto, "auto"}, {OpOrder::Slots, "slots"}, {OpOrder::Deepest, "deepest"}});

/// The shape that a generator is asked for. A schedule takes some of its parameters; the registry says which.
struct PipelineShape {
  std::int64_t stages = 0;         // D: workers of one pipeline
  std::int64_t micro_batches = 0;  // N: per step, all directions together
  std::int64_t pipelines = 2;      // 2f: Chimera's down and up pipelines together
  std::int64_t chunks = 1;         // v: virtual stages of a replica on each worker
  std::int64_t waves = 1;          // w: Hanayo's
  ScaleMethod scale = ScaleMethod::Direct;
  OpOrder order = OpOrder::Auto;
};

/// No schedule of more ops than this is made or read: 10^8.
inline constexpr std::int64_t kMostOps = 100'000'000;

/// worker_of[r][s]: the worker that holds stage s of replica r. A stage lives on one worker per replica.
struct Placement {
  std::vector<std::vector<WorkerId>> worker_of;
  [[nodiscard]] WorkerId worker(ReplicaId replica, StageId stage) const {
    return worker_of[replica.index()][stage.index()];
  }
  [[nodiscard]] std::size_t num_replicas() const { return worker_of.size(); }
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// How a worker runs its pairs. A pair is a forward (Op::paired) and, right behind it, a whole backward or an input
/// gradient of another micro-batch, neither of which needs the other: where hardware would be idle in one of them, the
/// two take less time together than one after the other.
enum class Pairs : std::uint8_t {
  InOrder,   ///< one op after the other, as if they were no pairs
  Together,  ///< both start when the inputs of both are there, and others have their results when both are done
};

/// The op (or instruction) at `position` of a worker's list.
struct Place {
  std::size_t worker = 0;
  std::size_t position = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

/// How an asynchronous schedule updates its weights. A worker updates a stage right after the last backward (B, or W)
/// of every `micro_batches` in ascending order, which makes the next weight version. All ops of a micro-batch at a
/// stage use one version (weight stashing): without a delay, the newest when the forward starts, which differs from
/// stage to stage; with a delay d, version max(0, t - d) on every stage, where the micro-batch goes into update t, from
/// 0.
struct AsynchronousUpdates {
  std::int64_t micro_batches = 1;                    // that make one update
  std::int64_t versions = 1;                         // most versions of a stage's weights kept at once
  std::optional<std::int64_t> delay = std::nullopt;  // d; none: newest
  friend bool operator==(const AsynchronousUpdates&, const AsynchronousUpdates&) = default;
};

struct Schedule {
  std::string name;                      // of the generator, or the user's own
  std::int64_t stages = 0;               // S: stages the model is cut into
  std::int64_t micro_batches = 0;        // N
  Placement placement;                   // (replica, stage) -> worker
  std::vector<std::vector<Op>> workers;  // workers[w]: ops of worker w, in order
  double micro_batch_scale = 1;          // size of its micro-batches, in full ones: 0.5 after backward halving
  std::optional<AsynchronousUpdates> updates = std::nullopt;  // none: synchronous, one update at the step's end
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// The workers that hold stage s in any replica, ascending and distinct, for every s: who sums its gradients.
[[nodiscard]] std::vector<std::vector<WorkerId>> stage_groups(const Placement& placement);

/// Whether the stage uses the matrix of a tied model, which is its token embedding and its head: the first, or the
/// last.
[[nodiscard]] bool uses_tied_matrix(StageId stage, std::int64_t stages);

/// The workers that sum the gradients of each parameter group: stage_groups(), and of a tied model, as group S, the
/// owners of the tied matrix: the workers that hold stage 0 or S-1 in any replica, ascending and distinct.
[[nodiscard]] std::vector<std::vector<WorkerId>> gradient_groups(const Placement& placement, bool tied);

/// The micro-batches of each replica, ascending: the order in which the step's samples are dealt out.
[[nodiscard]] std::vector<std::vector<MicroBatchId>> micro_batches_of_replicas(const Schedule& schedule);

/// Number of ops on all workers.
[[nodiscard]] std::int64_t num_ops(const Schedule& schedule);

/// How many of a worker's ops run as one from `position` on, where a pair or a single op begins: 1 or 2.
[[nodiscard]] inline std::size_t num_at_once(const std::vector<Op>& ops, std::size_t position, Pairs pairs) {
  return pairs == Pairs::Together && ops[position].paired && position + 1 < ops.size() ? 2 : 1;
}

/// Those ops.
[[nodiscard]] inline std::span<const Op> ops_at_once(const std::vector<Op>& ops, std::size_t position, Pairs pairs) {
  return std::span(ops).subspan(position, num_at_once(ops, position, pairs));
}

/// Whether any of its ops are pairs.
[[nodiscard]] bool has_pairs(const Schedule& schedule);
/// The same schedule without pairs.
[[nodiscard]] Schedule without_pairs(Schedule schedule);

}  // namespace chimera

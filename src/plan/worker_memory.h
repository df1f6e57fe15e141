#pragma once

// Peak memory of workers, and the choice of stages to recompute or offload so that the peak fits in memory. There are
// two estimates of the peak. peaks_by_order() needs no simulation: it visits a worker's ops in order, adds the bytes
// that each op keeps and subtracts the bytes that it frees. worker_peaks() uses the timeline of a simulation. By
// peaks_by_order(), stages_to_recompute() chooses whole stages, blocks_to_recompute() the levels of single blocks, and
// blocks_to_offload() stages and then blocks. choose_stages() returns the choices of a training run for its flags
// --recompute, --offload and --memory.

#include "plan/stage_choice.h"
#include "plan/stage_model.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Returns the peak bytes [worker] by the order of ops, without a timeline: weights (all versions), gradients,
/// optimizer state, activations, working sets (temporary memory of an op, model_config/footprint.h), as many messages
/// as can be in flight, and StageModel::reserved_bytes. The result is an upper bound of worker_peaks(), with one
/// exception: a message may still wait for its op when the sender has already produced later messages of the same
/// channel.
///
/// `recompute` and `offload` are the stages that recompute and offload activations; they replace those in the costs of
/// `model`. If `offload` has no value, the model's CostModel::offload applies. Activations of an offloaded forward
/// count until the worker's next offloaded forward has ended, and again from the start of their copy back to the
/// device.
[[nodiscard]] std::vector<double> peaks_by_order(const Schedule& schedule, const StageModel& model,
                                                 const std::set<StageId>& recompute,
                                                 const std::optional<std::set<StageId>>& offload = std::nullopt);

/// Returns the peak bytes [worker] in the timeline. `explanation` is the result of explain() (simulate/explain.h), with
/// the memory of each worker over time. The function adds the working set of each op and StageModel::reserved_bytes.
[[nodiscard]] std::vector<double> worker_peaks(const Schedule& schedule, const StageModel& model,
                                               const Timeline& timeline, const Explanation& explanation);

/// Returns stages to recompute so that peaks_by_order() is at most `memory_bytes` on every worker. For one worker after
/// another, adds the stage that saves most until the worker fits. Returns an empty set if every worker fits without
/// recomputation, and no value if recomputing all stages does not suffice.
[[nodiscard]] std::optional<std::set<StageId>> stages_to_recompute(const Schedule& schedule, const StageModel& model,
                                                                   double memory_bytes);

/// Function that makes the StageModel of the run for a partition, which may have other levels of recomputation or other
/// StageLayers::on_device than the last.
using ModelOfPartition = std::function<StageModel(const std::vector<StageLayers>&)>;

/// Returns the levels of blocks (StageRule::Counted) at which peaks_by_order() is at most `memory_bytes` on every
/// worker; StageRule::None if this holds without recomputation; no value if no levels suffice. For one worker after
/// another, takes the levels that free enough bytes (StageModel::savings times the worker's micro-batches in flight)
/// and cost the least time in its ops.
[[nodiscard]] std::optional<StageChoice> blocks_to_recompute(const Schedule& schedule,
                                                             std::vector<StageLayers> partition, double memory_bytes,
                                                             const ModelOfPartition& model);

/// Returns what to offload if the stages in `recompute` are recomputed. Adds stages as stages_to_recompute() does, and
/// then offloads as few blocks of each stage as memory allows. Returns no value if offloading all stages does not
/// suffice.
[[nodiscard]] std::optional<StageChoice> blocks_to_offload(const Schedule& schedule, std::vector<StageLayers> partition,
                                                           const std::set<StageId>& recompute, double memory_bytes,
                                                           const ModelOfPartition& model);

/// Values of --recompute, --offload and --memory.
struct StageRequest {
  StageChoice recompute;
  StageChoice offload;
  double memory_gib = 0;  // memory of a worker, for `auto`; 0: not given
};

/// Stages of a run that recompute or offload activations.
struct ChosenStages {
  std::set<StageId> recompute;
  std::set<StageId> offload;
  StageChoice blocks = {};          // for set_levels()
  StageChoice offload_blocks = {};  // for set_on_device()
};

/// Returns the stages of a training run, and the blocks that recompute. With --recompute auto, blocks recompute or, if
/// this does not suffice, whole stages, until every worker fits in memory. Calls `model` only if a flag is `auto`.
/// Throws ConfigError as resolve_stages() does. Also throws it if `auto` is given without --memory or for both flags,
/// and if a worker does not fit even if all stages recompute or offload.
[[nodiscard]] ChosenStages choose_stages(const StageRequest& request, const Schedule& schedule,
                                         const std::vector<StageLayers>& partition, const ModelOfPartition& model);

}  // namespace chimera

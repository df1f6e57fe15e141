#pragma once

// Peak memory of workers, and the stages to recompute or offload so that it fits. There are two estimates.
// peaks_by_order() needs no simulation: it visits a worker's ops in order, adds the bytes that each op keeps and
// subtracts the bytes that it frees. worker_peaks() reads the timeline of a simulation instead. stages_to_recompute()
// and stages_to_offload() choose stages by the first estimate. choose_stages() returns the stages of a training run for
// its flags --recompute, --offload and --memory.

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "plan/stage_choice.h"
#include "plan/stage_model.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Returns the peak bytes [worker] by the order of ops, without a timeline: weights (all versions), gradients,
/// optimizer state, activations, working sets, as many messages as channels can have in flight, and what is reserved.
/// The result is an upper bound of worker_peaks(), with one exception: a message may still wait for its op when the
/// sender has already produced later messages of the same channel.
///
/// The stages in `recompute` are recomputed, whatever `model` says. The stages in `offload` are offloaded; if it has no
/// value, the stages of CostModel::offload are offloaded. Activations of an offloaded forward count until the worker's
/// next offloaded forward has ended, and again from the start of their copy back to the device.
[[nodiscard]] std::vector<double> peaks_by_order(const Schedule& schedule, const StageModel& model,
                                                 const std::set<StageId>& recompute,
                                                 const std::optional<std::set<StageId>>& offload = std::nullopt);

/// Returns the peak bytes [worker] in the timeline. `explanation` is the result of explain(). The working set of each
/// op is added to its amounts, and what is reserved to all.
[[nodiscard]] std::vector<double> worker_peaks(const Schedule& schedule, const StageModel& model,
                                               const Timeline& timeline, const Explanation& explanation);

/// Returns stages to recompute so that peaks_by_order() is at most `memory_bytes` on every worker. Visits the workers
/// in turn and adds the stage that saves most until the worker fits. Returns an empty set if none is needed, and no
/// value if recomputing all stages does not suffice.
[[nodiscard]] std::optional<std::set<StageId>> stages_to_recompute(const Schedule& schedule, const StageModel& model,
                                                                   double memory_bytes);

/// Returns stages to offload, chosen in the same way. The stages in `recompute` are recomputed.
[[nodiscard]] std::optional<std::set<StageId>> stages_to_offload(const Schedule& schedule, const StageModel& model,
                                                                 const std::set<StageId>& recompute,
                                                                 double memory_bytes);

/// Values of --recompute, --offload and --memory.
struct StageRequest {
  StageChoice recompute;
  StageChoice offload;
  double memory_gib = 0;  // of a worker, for `auto`; 0: not given
};

struct ChosenStages {
  std::set<StageId> recompute;
  std::set<StageId> offload;
};

/// Returns the stages of a training run. For `auto`, adds stages until every worker fits; `model` is called only then.
/// Throws ConfigError as resolve_stages() does. Also throws it if `auto` is given without --memory or for both flags,
/// and if the workers do not fit even with all stages.
[[nodiscard]] ChosenStages choose_stages(const StageRequest& request, const Schedule& schedule,
                                         const std::function<StageModel()>& model);

}  // namespace chimera

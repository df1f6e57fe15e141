#pragma once

// Peak memory of workers, and the stages to recompute or offload so that it fits. There are two estimates.
// peaks_by_order() needs no times: it walks through a worker's ops in order and adds what each keeps and frees, an
// upper bound. worker_peaks() reads the timeline of a simulation. choose_stages() turns --recompute, --offload and
// --memory of a training run into stages.

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
/// optimizer state, activations, working sets, and as many messages as channels can have in flight. An upper bound of
/// worker_peaks(), unless messages wait for their ops while later messages of the channel are made. `recompute`
/// replaces the recomputation of `model`, and `offload`, if given, its CostModel::offload. A forward counts until the
/// next offloaded one has ended.
[[nodiscard]] std::vector<double> peaks_by_order(const Schedule& schedule, const StageModel& model,
                                                 const std::set<StageId>& recompute,
                                                 const std::optional<std::set<StageId>>& offload = std::nullopt);

/// Returns the peak bytes [worker] in the timeline: amounts of explain() plus working sets.
[[nodiscard]] std::vector<double> worker_peaks(const Schedule& schedule, const StageModel& model,
                                               const Timeline& timeline, const Explanation& explanation);

/// Returns stages whose recomputation makes peaks_by_order() fit. Visits the workers in turn and adds the stage that
/// saves most until the worker fits. Empty set: no recomputation needed; no value: recomputing all stages does not
/// suffice.
[[nodiscard]] std::optional<std::set<StageId>> stages_to_recompute(const Schedule& schedule, const StageModel& model,
                                                                   double memory_bytes);

/// The same for offloading.
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

/// Returns the stages of a training run. `auto` chooses stages until every worker fits; only it needs `model`. Throws
/// ConfigError as resolve_stages() does, for `auto` without memory or for both flags, and if all stages do not suffice.
[[nodiscard]] ChosenStages choose_stages(const StageRequest& request, const Schedule& schedule,
                                         const std::function<StageModel()>& model);

}  // namespace chimera

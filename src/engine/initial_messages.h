#pragma once
// What the ranks of a user's model tell each other before the first step.

#include <map>
#include <string>
#include <vector>

#include "engine/fit_run.h"
#include "transport/transport.h"

namespace chimera {

/// Makes parameters equal over the copies of each stage: those of replica 0 in group 0 are sent to the ranks that hold
/// another. `stages` are those of this rank; `transport` connects all ranks.
void share_initial_values(const FitRun& run, RankId rank, const std::map<StageId, ModuleStage*>& stages,
                          Transport& transport);

/// The names of all trained parameters of the model, ascending: the order in which squared norms are added whatever the
/// layout.
[[nodiscard]] std::vector<std::string> gather_parameter_names(const FitRun& run, RankId rank,
                                                              const std::map<StageId, ModuleStage*>& stages,
                                                              Transport& transport);

/// [S - 1] what each stage but the last gives for a micro-batch. Found by running replica 0 of group 0 once, stage
/// after stage, the first on the first samples of step 0, the others on zeros; the last one runs too, so that what
/// cannot work fails here. Every stage in `stages` then insists on that shape.
[[nodiscard]] std::vector<TensorSpec> find_boundaries(const FitRun& run, RankId rank,
                                                      const std::map<StageId, ModuleStage*>& stages,
                                                      Transport& transport);

}  // namespace chimera

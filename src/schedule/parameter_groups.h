#pragma once
// What is summed together: the gradients of each stage, and above them those of a tied matrix.

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "schedule/schedule.h"

namespace chimera {

/// Parameters whose gradients the same workers sum in one go: group s are those of stage s alone. A tied matrix, which
/// belongs to no stage, is the group above the last stage's.
using ParameterGroupId = Id<struct ParameterGroupTag, std::int32_t>;

/// The parameters of a stage, without a tied matrix.
[[nodiscard]] constexpr ParameterGroupId parameters_of(StageId stage) { return ParameterGroupId(stage.value()); }

/// The tied matrix of a model that is cut into `stages`.
[[nodiscard]] constexpr ParameterGroupId tied_matrix(std::int64_t stages) { return ParameterGroupId(stages); }

/// The workers that sum the gradients of each parameter group, [group], ascending and distinct: what stage_groups()
/// and, of a model that may be tied, gradient_groups() give.
using WorkerGroups = std::vector<std::vector<WorkerId>>;

}  // namespace chimera

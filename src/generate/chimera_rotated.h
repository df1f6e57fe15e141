#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Chimera with rotated instead of reversed pipelines: all replicas run in one direction, each starting some workers
/// after the one before. On four workers with two replicas (stages by replica):
///
///   worker       0  1  2  3
///   replica 0    0  1  2  3    enters at worker 0
///   replica 1    2  3  0  1    enters at worker 2, where replica 0's first micro-batch arrives two ops later
[[nodiscard]] Schedule chimera_rotated(const PipelineShape& shape);
[[nodiscard]] Generator chimera_rotated_entry();

}  // namespace chimera

#pragma once
// Schedules of one replica with v = `chunks` stages on each worker: stage s is on worker s mod D. A micro-batch loops
// through the workers v times, so bubbles are a v-th as long and messages v times as many.

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Looped breadth-first pipeline: GPipe with several chunks.
[[nodiscard]] Schedule looped_bfs(const PipelineShape& shape);
[[nodiscard]] Generator looped_bfs_entry();

/// Interleaved 1F1B of Megatron-LM.
[[nodiscard]] Schedule interleaved_one_f_one_b(const PipelineShape& shape);
[[nodiscard]] Generator interleaved_one_f_one_b_entry();

/// Combined 1F1B of Megatron-LM: interleaved 1F1B whose forwards and backwards form pairs.
[[nodiscard]] Schedule combined_one_f_one_b(const PipelineShape& shape);
[[nodiscard]] Generator combined_one_f_one_b_entry();

/// Interleaved 1F1B with split backward: interleaved ZB-H1.
[[nodiscard]] Schedule interleaved_zb(const PipelineShape& shape);
[[nodiscard]] Generator interleaved_zb_entry();

}  // namespace chimera

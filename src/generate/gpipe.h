#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// GPipe: all forwards, then all backwards in the same order of micro-batches, last slice first. Any D, N and k, else
/// ConfigError. Makespan (N + (D - 1)/k)(F + B); each worker holds N activations. Source: Huang et al., NeurIPS'19;
/// backward order as in torch.distributed.pipelining.
[[nodiscard]] Schedule gpipe(const PipelineShape& shape);

[[nodiscard]] Generator gpipe_entry();

}  // namespace chimera

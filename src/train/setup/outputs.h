#pragma once
// The files that a run writes.

#include "train/setup/options.h"

namespace chimera {

/// Makes sure, before anything is started, that each file can be written and is none of those that the run reads, nor
/// another one that it writes. Throws ConfigError.
void require_outputs(const TrainOptions& options);

}  // namespace chimera

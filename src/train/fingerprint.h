#pragma once
// What of a job all its ranks must have in common.

#include "train/job.h"
#include "transport/fingerprint.h"

namespace chimera {

/// XXH3 of the build (this program's file, how LibTorch was built), of every option that changes what is computed,
/// of the model's sizes and parameters, the programs and the data, all of it.
[[nodiscard]] Fingerprint fingerprint(const Job& job);

}  // namespace chimera

#pragma once
// How many files the processes of a job have open.

#include <cstdint>

#include "train/setup/job.h"

namespace chimera {

/// Files that a process of the job has open at once, at most: each rank, or all of them as threads, or their launcher.
[[nodiscard]] std::int64_t descriptors_needed(const Job& job);

}  // namespace chimera

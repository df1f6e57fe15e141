#pragma once
// What of a job all its ranks must have in common.

#include <cstdint>

#include "train/setup/job.h"
#include "transport/fingerprint.h"

namespace chimera {

/// The part of a fingerprint that says which checkpoint a job goes on from.
inline constexpr const char* kResumeFlag = "--resume";

/// XXH3 of the build (this program's file, how LibTorch was built), of every option that changes what is computed,
/// of the model's sizes and parameters, the programs and the data, all of it.
[[nodiscard]] Fingerprint fingerprint(const Job& job);

/// XXH3 of all data, files and shares.
[[nodiscard]] std::uint64_t data_hash(const Job& job);

/// Reads the job's large files once, before ranks are started: their fingerprints then find the hashes kept
/// (data/content_hash.h).
void hash_large_data(const Job& job);

}  // namespace chimera

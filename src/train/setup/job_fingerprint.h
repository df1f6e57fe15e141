#pragma once

// Fingerprint of a job: ranks that were started with other options, data or builds would deadlock or diverge, so ranks
// compare hashes of everything that they must share when they connect, and name the first difference.

#include <cstdint>

#include "train/setup/job.h"
#include "transport/fingerprint.h"

namespace chimera {

/// The entry of a fingerprint that names the checkpoint a job resumes from.
inline constexpr const char* kResumeFlag = "--resume";

/// Returns XXH3 hashes of all that ranks of a job must share: the build (this executable, LibTorch), options that
/// change results, model, programs and all data.
[[nodiscard]] Fingerprint fingerprint(const Job& job);

/// Returns the XXH3 hash of all data files and mixture shares.
[[nodiscard]] std::uint64_t data_hash(const Job& job);

/// Hashes the large files before ranks start, so that their fingerprints find cached hashes (default_hash_cache()).
void hash_large_data(const Job& job);

}  // namespace chimera

#pragma once

// Detects that ranks, or a checkpoint, belong to another job. fingerprint() has hashes of the options, data and build
// of a rank. Ranks compare them when they connect and report the first difference, because different ranks would
// deadlock or diverge. run_record() is a description of the job as JSON in each checkpoint. A run that resumes compares
// it with its own: it rejects another model, accepts other data only if the user allows it, and reports other
// hyperparameters.

#include <nlohmann/json.hpp>

#include "train/setup/job.h"
#include "transport/fingerprint.h"

namespace chimera {

/// Name of the entry of a fingerprint for the checkpoint that a job resumes from. After the loss of a rank, ranks do
/// not compare it, because replacements read no checkpoint.
inline constexpr const char* kResumeFlag = "--resume";

/// Returns XXH3 hashes of all that ranks of a job must share: the build (this executable, LibTorch), options that
/// change results, model, programs and all data.
[[nodiscard]] Fingerprint fingerprint(const Job& job);

/// Returns the constant sections of Manifest::run: `model`, `optimizer`, `data`, `hyperparameters`, `layout`,
/// `tokenizer`, `versions` (docs/checkpoints.md).
[[nodiscard]] nlohmann::ordered_json run_record(const Job& job);

/// Differences between a checkpoint's run and the run that resumes it, each as `data.sequence: 128 there, 64 here`.
struct RunDifferences {
  std::vector<std::string> model;  ///< Model or optimizer: cannot resume
  std::vector<std::string> data;   ///< Data, mini-batch or seed: other samples
  std::vector<std::string> other;  ///< Hyperparameters or versions: other numbers
};
/// Compares two results of run_record(): `there` of the checkpoint, `here` of the run that resumes it.
[[nodiscard]] RunDifferences differences(const nlohmann::ordered_json& there, const nlohmann::ordered_json& here);

}  // namespace chimera

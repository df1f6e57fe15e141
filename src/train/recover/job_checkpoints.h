#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/shard.h"
#include "engine/optimizer.h"
#include "launch/local/launcher.h"
#include "model/initial_values.h"
#include "telemetry/metrics.h"
#include "train/setup/job.h"

// Where a run that has failed goes on.

// The checkpoint that a job goes on from, and what those that it saves say of it.

namespace chimera {

/// The start from the newest good checkpoint of the job's folder; where that has none yet, from where the job began.
/// Says on messages() which newer checkpoints were refused. The arguments are flags of `chimera train`.
[[nodiscard]] NextStart next_start(const Job& job, std::int64_t failed_step);

/// The flag with which ranks are told the step, from 1, in which the start before has failed.
inline constexpr const char* kFailedStepFlag = "--failed-step";

/// The checkpoint that a job goes on from, open for reading: each rank reads its own tensors alone.
struct ResumedRun {
  Checkpoint checkpoint;
  CheckpointTensors tensors;
  std::int64_t updates = 0;  ///< of each parameter, that the optimizer had made
  LossWatch loss_watch;      ///< nothing was watched where the manifest has none
};

struct JobCheckpoints {
  nlohmann::ordered_json record;             ///< run_record()
  std::map<std::string, std::string> files;  ///< what makes a checkpoint a Hugging Face folder; none for other models
  std::optional<ResumedRun> resumed;
};

/// Finds and opens what --resume names, and sets Job::checkpoints and Job::first_step; the job's data are open. Says on
/// messages() which newer checkpoints were refused, and what makes the run another one. Throws ConfigError where there
/// is no good checkpoint, where model, optimizer or, unless that is allowed, data differ, where the job cannot begin at
/// that step, and where the folder of --checkpoint has newer ones than the job would go on from.
void open_checkpoints(Job& job);

/// Initial values of the parameters: those of the checkpoint.
[[nodiscard]] FirstValue resumed_values(const Job& job);
/// Fills the state that an optimizer keeps on this rank with what the checkpoint has.
void resume_optimizer(const Job& job, Optimizer& optimizer);

/// The name under which a checkpoint has the tensor that an optimizer keeps for a parameter:
/// `transformer.wte.weight.first_moment`.
[[nodiscard]] std::string state_name(const ModelConfig& model, const std::string& parameter, const std::string& kind);

}  // namespace chimera

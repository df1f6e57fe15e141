#pragma once

// Connects a job with its checkpoints: opens the checkpoint that it resumes from (which must be of the same run),
// prepares the description of the job for the checkpoints that it saves, and checks that they fit on the disk. The
// folder checkpoint/ has the file formats, and train/recover/checkpointer.h saves during training.

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/shard.h"
#include "engine/optimizer.h"
#include "launch/local/launcher.h"
#include "model/make_stage.h"
#include "telemetry/metrics.h"
#include "train/setup/job.h"

namespace chimera {

/// Returns the additional arguments of a restarted job: it resumes from the newest valid checkpoint in its folder or,
/// if there is none, starts as the first attempt did. `failed_step` (from 1) is the step that ended the previous
/// attempt; 0: none. Reports newer checkpoints that are damaged on messages() (standard error). The launcher calls it
/// (LaunchPlan::next_start).
[[nodiscard]] NextStart next_start(const Job& job, std::int64_t failed_step);

/// `loss_watch` in the manifest of a run with --spike.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LossWatch, mean, distance, variance, losses)

/// An open checkpoint. Each rank reads only its own tensors.
struct ResumedRun {
  Checkpoint checkpoint;
  CheckpointTensors tensors;
  std::int64_t updates = 0;  ///< Updates of each parameter so far
  LossWatch loss_watch;      ///< Empty if the manifest has none
};

/// Input of the checkpoints that a job saves, also in place of a failed --export, and the checkpoint that it resumes.
struct JobCheckpoints {
  nlohmann::ordered_json record;  ///< Description of the job for the manifest, from run_record()
  /// Text files to add, name -> text: the tokenizer, and config.json if transformers has the model
  std::map<std::string, std::string> files;
  std::optional<ResumedRun> resumed;  ///< The checkpoint of --resume
};

/// Opens the checkpoint of --resume and sets Job::checkpoints and Job::first_step; the job's data must be open. Reports
/// rejected newer checkpoints and changed options on messages(). Throws ConfigError if no checkpoint is valid, or if
/// model, optimizer or (unless allowed) data differ. Also throws if the job cannot start at that step, or if the
/// --checkpoint folder has newer checkpoints.
void open_checkpoints(Job& job);

/// Sets the peak and the warm-up of the learning rate to the values of the saved run of --resume, unless flags give
/// them. For dry runs, which do not call open_checkpoints().
void take_saved_rates(TrainOptions& options);

/// Key in Manifest::run of the saved run's Retention (--keep, --keep-every). A resumed run keeps these values unless
/// the flags are given.
inline constexpr const char* kKeepSection = "keep";

/// Returns the bytes of the tensors of one checkpoint.
[[nodiscard]] double checkpoint_bytes(const ModelConfig& model, const TrainOptions& options);
/// Throws ConfigError if the disk of --checkpoint has no room for one checkpoint. Reports on messages() if it has none
/// for all checkpoints that the run keeps. Does nothing without --checkpoint. `first_step` is the number of steps that
/// are done.
void require_space(const ModelConfig& model, const TrainOptions& options, std::int64_t first_step);

/// Returns a function that reads initial values of parameters from the checkpoint of --resume, and borrows the
/// arguments. The function throws CheckpointError if a tensor is missing or has another shape.
[[nodiscard]] InitialValue resumed_values(const ResumedRun& resumed, const ModelConfig& model);
/// Restores this rank's optimizer state from the checkpoint. `tensor` are the ranks that share its layers (null: none);
/// each reads its part of the tensors. Throws CheckpointError as above.
void resume_optimizer(const ResumedRun& resumed, const ModelConfig& model, Optimizer& optimizer, TensorGroup* tensor);

/// Returns the name of an optimizer tensor in a checkpoint: `transformer.wte.weight.first_moment`.
[[nodiscard]] std::string state_name(const ModelConfig& model, const std::string& parameter, const std::string& kind);

// When LossGuard detects a spike, it writes the range of steps to a file in the checkpoint folder and ends the attempt.
// The next attempt reads the file (Job::left_out).

/// JSON file with pairs of numbers and its own hash.
inline constexpr const char* kLeftOutName = "left-out.json";

/// Returns the ranges in a checkpoint folder, in order of detection; empty without a file. Throws ConfigError for a
/// file that write_left_out() has not written.
[[nodiscard]] std::vector<LeftOutSteps> read_left_out(const std::string& folder);
/// Writes the file atomically, and waits until it is on the disk. Throws CheckpointError if it cannot be written.
void write_left_out(const std::string& folder, const std::vector<LeftOutSteps>& ranges);
/// Removes the file, if it exists. Throws ConfigError if it cannot be removed.
void forget_left_out(const std::string& folder);

}  // namespace chimera

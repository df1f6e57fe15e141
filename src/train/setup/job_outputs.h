#pragma once

// Files that a job writes besides checkpoints: metrics, traces, reports, and the folder of --export. They are checked
// before training starts, so that no run fails at its end because a file cannot be written or belongs to another run.

#include "safetensors/weight_files.h"
#include "train/setup/job.h"

namespace chimera {

/// Throws ConfigError if an output file cannot be written, is an input of the run, is from another run, or is written
/// by two flags.
void require_outputs(const Job& job);

/// Writes the output of `flag` to `path`. If the file exists with content and `replaces` (Job::replaces_outputs()) is
/// false, another run has written it since the start: then adds a number to the name, and reports it on messages().
/// Throws ConfigError if the file cannot be written.
void write_final_output(bool replaces, const char* flag, const std::string& path, const std::string& text);

/// Returns the element type of the tensors of --export: --export-dtype, else the type of the weights.
[[nodiscard]] ElementType export_type(const TrainOptions& options);

/// Returns which weights go to which file of --export, and where in it.
[[nodiscard]] ExportPlan plan_job_export(const ModelConfig& model, const TrainOptions& options);

/// Throws ConfigError if the folder of --export cannot be created, or if transformers has no class for the model.
void require_exportable(const ModelConfig& model, const TrainOptions& options);

}  // namespace chimera

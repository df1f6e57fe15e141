#pragma once

// Files that a job writes besides checkpoints: metrics, traces, reports, and the folder of --export. They are checked
// before training starts, so that no run fails at its end because a file cannot be written or belongs to another run.

#include <string>

#include "hugging_face/export_plan.h"
#include "safetensors/element_type.h"
#include "train/setup/job.h"

namespace chimera {

/// Throws ConfigError if an output file cannot be written, is an input of the run, is from another run, or is written
/// by two flags.
void require_outputs(const Job& job);

/// Writes an output, with a number in its name if another run has written it since the start. Throws ConfigError.
void write_at_end(const Job& job, const char* flag, const std::string& path, const std::string& text);

/// Returns the element type of the tensors of --export.
[[nodiscard]] ElementType export_type(const TrainOptions& options);

/// Returns the files of --export.
[[nodiscard]] ExportPlan planned_export(const Job& job);

/// Throws ConfigError if the folder of --export cannot be created, or if transformers has no class for the model.
void require_exportable(const Job& job);

}  // namespace chimera

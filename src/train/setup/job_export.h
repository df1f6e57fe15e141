#pragma once

// The model that `train --export` writes at the end of a run (train/export/export_model.h): its element type and files.
// They are planned before training starts, because its end is too late to find that a folder cannot be written.

#include "hugging_face/export_plan.h"
#include "safetensors/element_type.h"
#include "train/setup/job.h"

namespace chimera {

/// Returns the element type of the tensors of --export: --export-dtype, else the type of the weights.
[[nodiscard]] ElementType export_type(const TrainOptions& options);

/// Returns the files of --export.
[[nodiscard]] ExportPlan plan_job_export(const ModelConfig& model, const TrainOptions& options);

/// Throws ConfigError if the folder of --export cannot be created, or if transformers has no class for the model.
void require_exportable(const ModelConfig& model, const TrainOptions& options);

}  // namespace chimera

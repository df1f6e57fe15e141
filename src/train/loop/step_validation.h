#pragma once

// Evaluates the weights between two training steps. The Trainer (trainer.h) calls validation_loss() for
// --validate-every and sample_text() for --sample-every; both are collective. The first runs the forwards of the
// schedule on mini-batches of the validation split. The second generates text after --prompt; for this, one copy of
// each stage is enough (replica 0 in data-parallel group 0).

#include <string>

#include "engine/step_driver.h"
#include "train/loop/loader.h"
#include "train/setup/device_progress.h"
#include "train/setup/rank_context.h"
#include "train/setup/trained_model.h"

namespace chimera {

// In both, `step` is the last training step, from 1; messages about hangs and failures name it. Both return the same
// result on all ranks, and throw the errors of the transport.

/// Returns the mean loss over the mini-batches of the validation split: at least one, at most --validate-batches.
[[nodiscard]] double validation_loss(const RankContext& self, const Loader& loader, StepDriver& driver,
                                     DeviceProgress& progress, std::int64_t step);
/// Returns the text that the model generates after the prompt.
[[nodiscard]] std::string sample_text(const RankContext& self, const TrainedModel& model, DeviceProgress& progress,
                                      std::int64_t step);

}  // namespace chimera

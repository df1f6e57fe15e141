#pragma once

// Evaluates the weights between two training steps. The Trainer (trainer.h) calls loss() for --validate-every and
// sample() for --sample-every; both are collective. loss() runs the forwards of the schedule on mini-batches of the
// validation split. sample() continues the prompt, with the stages of replica 0 in data-parallel group 0.

#include <cstdint>
#include <string>

#include "engine/step_driver.h"
#include "train/loop/loader.h"
#include "train/setup/device_progress.h"
#include "train/setup/rank_context.h"
#include "train/setup/trained_model.h"

namespace chimera {

/// Validation and samples of one rank. Borrows its arguments. `step` is the last training step, from 1; messages about
/// hangs and failures name it.
class StepValidation {
 public:
  StepValidation(const RankContext& self, const TrainedModel& model, const Loader& loader, StepDriver& driver,
                 DeviceProgress& progress)
      : self_(self), model_(model), loader_(loader), driver_(driver), progress_(progress) {}

  /// Returns the mean loss over at most --validate-batches mini-batches, on all ranks.
  [[nodiscard]] double loss(std::int64_t step);
  /// Returns the text that continues the prompt, on all ranks.
  [[nodiscard]] std::string sample(std::int64_t step);

 private:
  const RankContext& self_;
  const TrainedModel& model_;
  const Loader& loader_;
  StepDriver& driver_;
  DeviceProgress& progress_;
};

}  // namespace chimera

#pragma once

// Measurements of the weights between steps. Every rank runs its part of them at the same step: the loss on held-out
// mini-batches (--validate-every) by the forwards of the schedule, and a continuation of the prompt (--sample-every) by
// the stages of replica 0 in data-parallel group 0.

#include <cstdint>
#include <string>

#include "engine/step_driver.h"
#include "train/loop/loader.h"
#include "train/setup/device_progress.h"
#include "train/setup/rank_context.h"
#include "train/setup/trained_model.h"

namespace chimera {

/// Borrows its arguments. `step` (from 1) is the last step, for messages about hangs and failures.
class StepValidation {
 public:
  StepValidation(const RankContext& self, const TrainedModel& model, const Loader& loader, StepDriver& driver,
                 DeviceProgress& progress)
      : self_(self), model_(model), loader_(loader), driver_(driver), progress_(progress) {}

  /// Returns the mean loss over at most --validate-batches mini-batches.
  [[nodiscard]] double loss(std::int64_t step);
  /// Returns the text that continues the prompt.
  [[nodiscard]] std::string sample(std::int64_t step);

 private:
  const RankContext& self_;
  const TrainedModel& model_;
  const Loader& loader_;
  StepDriver& driver_;
  DeviceProgress& progress_;
};

}  // namespace chimera

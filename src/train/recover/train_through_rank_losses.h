#pragma once
// Training that goes on when ranks are lost.

#include <functional>
#include <optional>

#include "train/loop/trainer.h"
#include "train/recover/reconnecting_transport.h"

namespace chimera {

/// Makes the trainer and trains all steps; when other ranks are lost it goes on with those that take their place. The
/// trainer's transport is `epochs`. `on_begin` is called whenever the trainer has weights and is about to go on,
/// `on_step` as Trainer::run() does, perhaps twice with the same step. Throws what the trainer throws, unless that came
/// of the loss of another rank.
RunSummary train_through_losses(const Job& job, RankId rank, Epochs& epochs, std::optional<Trainer>& trainer,
                                const std::function<void()>& on_begin,
                                const std::function<void(const StepMetrics&)>& on_step);

}  // namespace chimera

#pragma once

// What a rank with a GPU does once before its first step, so that nothing in a step makes the GPU wait while receives
// are pending: it runs the ops of training and validation (Executor::warm_up()), and records graphs of ops
// (--op-graphs). Trainer (trainer.h) calls warm_up_device().

#include "runtime/executor.h"
#include "train/loop/loader.h"
#include "train/setup/device_progress.h"
#include "train/setup/rank_context.h"

namespace chimera {

/// Runs the ops of training and validation on the samples of `step`, from 0, without messages and updates. Does nothing
/// on the CPU, and on the only rank of a job without --op-graphs. Collective: all ranks call it. Throws ConfigError if
/// less than kGpuMargin (train/setup/device.h) of the GPU's memory is free afterwards.
void warm_up_device(const RankContext& self, std::int64_t step, Loader& loader, DeviceProgress& progress,
                    Executor& executor);

}  // namespace chimera

#pragma once
// Training a user's own model by any synchronous schedule, on rank threads. docs/library.md shows it at work.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>

#include "core/error.h"
#include "engine/fit_run.h"
#include "engine/rank_fit.h"

namespace chimera {

/// Parameters and buffers by name, `3.weight`: global layer index and the module's own name.
using Parameters = std::map<std::string, at::Tensor>;

/// Trains all steps of the run, every rank a thread of this process. `on_step` is called after each step on the
/// caller's thread. Returns the parameters, which no one else refers to.
/// Throws what failed first: ConfigError for a module that cannot be trained so (see ModuleStage), Error for a loss
/// that is not finite, what the data function or `on_step` throws.
Parameters fit(const FitRun& run, const std::function<void(const FitStep&)>& on_step = {});

}  // namespace chimera

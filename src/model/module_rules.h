#pragma once
// Which modules give the same numbers however a model is cut, copied and run.

#include <cstdint>

#include "model/layer.h"

namespace chimera {

/// What the runtime does with a stage that a module must allow for.
struct ModuleUse {
  bool replicated = false;  // several workers train copies of it
  bool recomputed = false;  // a forward runs twice
};

/// Throws ConfigError, naming the layer and the module within it, for what such a use makes wrong: modules with
/// buffers, which copies would fill differently and recomputation twice; and modules that draw random numbers from
/// torch's generator when training, as recomputation would draw others. Functions are not looked into.
void require_repeatable(const Layer& layer, std::int64_t index, const ModuleUse& use);

}  // namespace chimera

#pragma once
// The weights of a Hugging Face folder as the first values of a model.

#include <cstdint>
#include <memory>

#include "model/first_values.h"
#include "model_folder/model_folder.h"

namespace chimera {

/// Reads each parameter where it is asked for, and nothing else: a rank reads the bytes of its stages. What the file
/// has in another type is converted a block at a time, so that no more than the parameter itself is in memory. The
/// result throws ConfigError where the folder's files have changed so that they cannot be read any more.
[[nodiscard]] FirstValue stored_values(std::shared_ptr<const ModelFolder> folder);

/// Those of the folder or, where there is none, the initial values of a new model.
[[nodiscard]] inline FirstValue first_values(const std::shared_ptr<const ModelFolder>& folder, std::int64_t seed) {
  return folder ? stored_values(folder) : initial_values_of(static_cast<std::uint64_t>(seed));
}

}  // namespace chimera

#pragma once
// The weights of a Hugging Face folder as the first values of a model.

#include <cstdint>
#include <functional>
#include <memory>

#include "hugging_face/model_folder.h"
#include "model/initial_values.h"

namespace chimera {

/// Fills `value` (contiguous) with the elements of a tensor of as many, converted a block at a time where their type is
/// another one. Throws ConfigError where the file cannot be read any more.
void read_values(const WeightFiles::Found& found, const at::Tensor& value);

/// Where the elements of a parameter are.
using FindValues = std::function<WeightFiles::Found(const ParameterSpec& parameter)>;
/// Reads each parameter where it is found, when it is asked for.
[[nodiscard]] FirstValue values_at(FindValues find);

/// Reads each parameter where it is asked for, and nothing else: a rank reads the bytes of its stages. What the file
/// has in another type is converted a block at a time, so that no more than the parameter itself is in memory. The
/// result throws ConfigError where the folder's files have changed so that they cannot be read any more.
[[nodiscard]] FirstValue stored_values(std::shared_ptr<const ModelFolder> folder);

/// Those of the folder or, where there is none, the initial values of a new model.
[[nodiscard]] inline FirstValue first_values(const std::shared_ptr<const ModelFolder>& folder, std::int64_t seed) {
  return folder ? stored_values(folder) : initial_values_of(static_cast<std::uint64_t>(seed));
}

}  // namespace chimera

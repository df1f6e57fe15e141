#pragma once
// The tensors of a checkpoint, by name, whichever file they are in.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "safetensors/weight_files.h"

namespace chimera {

/// All tensors of a checkpoint, open for reading. Headers are in memory, elements are not. Any number of threads may
/// read.
class CheckpointTensors {
 public:
  /// Opens the safetensors files that the manifest names. Throws CheckpointError where one cannot be read or is
  /// unsound, or where two have a tensor of the same name.
  CheckpointTensors(const std::string& checkpoint, const Manifest& manifest);

  [[nodiscard]] std::optional<WeightFiles::Found> find(std::string_view tensor) const;
  /// The names of all tensors, ascending.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::vector<SafetensorsFile> files_;
};

}  // namespace chimera

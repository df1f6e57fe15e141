#pragma once
// A model of Hugging Face as a file: its configuration, weights and inputs, and perhaps what it made of them
// (tests/support/hugging_face.py writes such files).

#include <memory>
#include <string>

#include "model/safetensors_file.h"
#include "model/transformer_stage.h"

namespace chimera {

struct ReferenceCase {
  LoadedTensors file;  ///< `weights/NAME`, `tokens`, `targets` and so on; `logits`, `loss`, `gradients/NAME` to compare
  ModelConfig config;
  at::ScalarType dtype = at::kDouble;  ///< that of the weights
  MicroBatch batch;
  std::unique_ptr<TiedWeight> tied;  ///< of a tied model, with the file's values

  /// A stage with the file's weights. Throws Error where one is missing or has another shape.
  [[nodiscard]] std::unique_ptr<Stage> load(const StageLayers& layers) const;
};

/// Throws Error for a file that is not of that form.
[[nodiscard]] ReferenceCase read_case(const std::string& path);

}  // namespace chimera

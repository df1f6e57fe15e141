#pragma once
// A Hugging Face model in a file: configuration, weights, inputs and, if recorded, outputs.
// tests/support/hugging_face.py writes such files.

#include <memory>
#include <string>

#include "model/safetensors_file.h"
#include "model/transformer_stage.h"

namespace chimera {

struct ReferenceCase {
  LoadedTensors file;  ///< `weights/NAME`, `tokens`, `targets` and so on; `logits`, `loss`, `gradients/NAME` to compare
  ModelConfig config;
  at::ScalarType dtype = at::kDouble;  ///< type of the weights
  MicroBatch batch;
  std::unique_ptr<TiedWeight> tied;  ///< of a tied model, with the file's values

  /// A stage with the file's weights. Throws Error if a weight is missing or has another shape.
  [[nodiscard]] std::unique_ptr<Stage> load(const StageLayers& layers) const;
};

/// Throws Error if the file is malformed.
[[nodiscard]] ReferenceCase read_case(const std::string& path);

}  // namespace chimera

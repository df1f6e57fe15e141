#pragma once
// What a folder has beside its weights.

#include <optional>
#include <vector>

#include "model_config/config.h"
#include "model_folder/model_folder.h"
#include "model_folder/staged_folder.h"
#include "tensor_files/tensor_table.h"

namespace chimera {

/// Name, type and shape of all tensors that a folder of the model has, in the order embedding, blocks, head.
[[nodiscard]] std::vector<TensorEntry> exported_tensors(const ModelConfig& model, ElementType type);

/// Adds config.json and generation_config.json and, where `source` is given, the files of its tokenizer. The source's
/// own config.json is kept, but for its type of tensors where that has become `type`.
void add_description(const StagedFolder& folder, const ModelConfig& model, const ModelFolder* source,
                     std::optional<ElementType> type);

}  // namespace chimera

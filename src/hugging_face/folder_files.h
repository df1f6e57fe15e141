#pragma once
// What a folder has beside its weights.

#include <optional>
#include <vector>

#include "hugging_face/model_folder.h"
#include "hugging_face/staged_folder.h"
#include "model_config/config.h"
#include "safetensors/tensor_table.h"

namespace chimera {

/// Name, type and shape of all tensors that a folder of the model has, in the order embedding, blocks, head.
[[nodiscard]] std::vector<TensorEntry> exported_tensors(const ModelConfig& model, ElementType type);

/// Adds config.json and generation_config.json. Where `source` is given they are its own, but for the type of tensors
/// where that has become `type`.
void add_description(const StagedFolder& folder, const ModelConfig& model, const ModelFolder* source,
                     std::optional<ElementType> type);

/// Adds the files of the tokenizer that open_tokenizer() finds at `path`: of a folder all that transformers knows, of a
/// file those that belong to it; for "bytes" they are made. A tokenizer_config.json that is missing is made too, so
/// that AutoTokenizer opens what Chimera opens. Adds nothing for an empty path, and of a folder what is there.
void add_tokenizer(const StagedFolder& folder, const ModelConfig& model, const std::string& path);

/// Throws ConfigError where the model's vocabulary is too small for bytes and, of BERT, its special tokens.
void require_room_for_bytes(const ModelConfig& model);

}  // namespace chimera

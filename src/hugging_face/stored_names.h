#pragma once

// Names of parameters in Hugging Face folders. Chimera names parameters as transformers 5 does
// (model_config/parameters.h), GPT-2's without their prefix. Older versions named some of them otherwise, wrote tied
// matrices twice, or stored buffers; these rules let all of them be read.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_config/config.h"
#include "model_config/parameters.h"

namespace chimera {

/// Returns a folder's possible names of a parameter (model_config/parameters.h), by precedence; transformers 5 writes
/// the first. GPT-2's names may lack `transformer.`, and layer norms may have `gamma` and `beta`. An untied BERT has
/// its vocabulary bias in the decoder, or in older files only as `cls.predictions.bias`. A tied model may have its
/// matrix (and BERT's bias) only under the name in the head.
[[nodiscard]] std::vector<std::string> stored_names(const ModelConfig& model, const std::string& parameter);

/// Returns two for the vocabulary bias of an untied BERT.
[[nodiscard]] std::vector<std::string> exported_names(const ModelConfig& model, const std::string& parameter);

/// Returns the parameter that a tensor of a tied model duplicates, as in older files: the tied matrix or BERT's bias.
[[nodiscard]] std::optional<ParameterSpec> repeated_parameter(const ModelConfig& model, std::string_view tensor);

/// Returns whether the tensor is a mask, positions or frequencies of older versions, or a bias that the model does not
/// use.
[[nodiscard]] bool is_ignored_tensor(const ModelConfig& model, std::string_view tensor);

}  // namespace chimera

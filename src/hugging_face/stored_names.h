#pragma once

// Names of parameters in the weight files of Hugging Face folders. Chimera uses the names of transformers 5
// (model_config/parameters.h), but GPT-2's without their prefix. Older versions of transformers used other names for
// some parameters, wrote tied matrices twice, or stored buffers. With these functions, ModelFolder (model_folder.h)
// reads the files of all versions, and exports write the names of transformers 5.

#include <string_view>

#include "model_config/config.h"
#include "model_config/parameters.h"

namespace chimera {

/// Returns the names that a parameter (model_config/parameters.h) may have in a folder; a reader takes the first that
/// exists, and transformers 5 writes the first. GPT-2's names may lack `transformer.`, and layer norms may have `gamma`
/// and `beta`. The bias of an untied BERT's vocabulary is `cls.predictions.decoder.bias`, or in older files
/// `cls.predictions.bias`. In a tied model, where the output matrix (head) is the token embedding, this matrix may be
/// stored only under the name of the head; so may BERT's bias.
[[nodiscard]] std::vector<std::string> stored_names(const ModelConfig& model, const std::string& parameter);

/// Returns the names under which an export writes the parameter: two for the vocabulary bias of an untied BERT, else
/// one.
[[nodiscard]] std::vector<std::string> exported_names(const ModelConfig& model, const std::string& parameter);

/// Files of older versions store some parameters of a tied model twice: the tied matrix and BERT's bias. If `tensor` is
/// the name of such a second copy, returns the parameter; else nullopt.
[[nodiscard]] std::optional<ParameterSpec> repeated_parameter(const ModelConfig& model, std::string_view tensor);

/// Returns whether a reader ignores the tensor: a mask, positions or frequencies that older versions stored, or a bias
/// that the model does not use.
[[nodiscard]] bool is_ignored_tensor(const ModelConfig& model, std::string_view tensor);

}  // namespace chimera

#pragma once
// What the tensors of a model are called in a Hugging Face folder.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_config/config.h"
#include "model_config/parameters.h"

namespace chimera {

/// The names under which a folder may have a parameter (as model_config/parameters.h calls it), the one that counts
/// first; the very first is how transformers 5 writes it. GPT-2's may lack their `transformer.`, and a layer norm may
/// have `gamma` and `beta`. The bias over the vocabulary of an untied BERT is its decoder's; older files have but
/// `cls.predictions.bias`.
[[nodiscard]] std::vector<std::string> stored_names(const ModelConfig& model, const std::string& parameter);

/// Those that an export writes it under: one, but two for the bias over the vocabulary of an untied BERT.
[[nodiscard]] std::vector<std::string> exported_names(const ModelConfig& model, const std::string& parameter);

/// The parameter that the tensor repeats in the folder of a tied model, as older files do: its head's, or BERT's second
/// bias. None where it repeats none.
[[nodiscard]] std::optional<ParameterSpec> repeated_parameter(const ModelConfig& model, std::string_view tensor);

/// Whether the tensor holds no weights, but a mask, positions or frequencies that older versions wrote too; or a bias
/// that the model does not use.
[[nodiscard]] bool is_no_weight(const ModelConfig& model, std::string_view tensor);

}  // namespace chimera

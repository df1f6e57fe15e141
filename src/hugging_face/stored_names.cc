#include "hugging_face/stored_names.h"

#include "model_config/parameters.h"

namespace chimera {
namespace {

constexpr std::string_view kPrefix = "transformer.";  // of GPT-2's tensors, except its head
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kBertBias = "cls.predictions.bias";
constexpr const char* kBertDecoderBias = "cls.predictions.decoder.bias";
constexpr const char* kBertDecoderWeight = "cls.predictions.decoder.weight";

std::vector<std::string> bert_names(const ModelConfig& model, const std::string& parameter) {
  if (parameter == kBertBias) {
    // In a tied model both names are one bias.
    if (model.tied) return {kBertBias, kBertDecoderBias};
    return {kBertDecoderBias, kBertBias};
  }
  std::vector<std::string> names = {parameter};
  const auto add_older = [&](std::string_view ending, std::string_view older) {
    if (!parameter.ends_with(ending)) return;
    names.push_back(parameter.substr(0, parameter.size() - ending.size()) + std::string(older));
  };
  // Names of the first versions, which came from TensorFlow.
  add_older("LayerNorm.weight", "LayerNorm.gamma");
  add_older("LayerNorm.bias", "LayerNorm.beta");
  return names;
}

std::vector<std::string> names_of_parameter(const ModelConfig& model, const std::string& parameter) {
  switch (model.family) {
    case Family::Gpt2:
      // The head is outside of the module `transformer`.
      if (parameter == kHead) return {parameter};
      return {std::string(kPrefix) + parameter, parameter};
    case Family::Bert: return bert_names(model, parameter);
    case Family::Llama: break;
  }
  return {parameter};
}

}  // namespace

std::vector<std::string> stored_names(const ModelConfig& model, const std::string& parameter) {
  std::vector<std::string> names = names_of_parameter(model, parameter);
  if (model.tied && parameter == tied_parameter(model).name)
    names.emplace_back(model.family == Family::Bert ? kBertDecoderWeight : kHead);
  return names;
}

std::vector<std::string> exported_names(const ModelConfig& model, const std::string& parameter) {
  if (model.family == Family::Bert && parameter == kBertBias && !model.tied) return {kBertBias, kBertDecoderBias};
  return {stored_names(model, parameter).front()};
}

// Older versions of transformers stored both uses of a tied matrix.
std::optional<ParameterSpec> repeated_parameter(const ModelConfig& model, std::string_view tensor) {
  if (!model.tied) return std::nullopt;
  const bool bert = model.family == Family::Bert;
  if (bert && tensor == kBertDecoderBias) return ParameterSpec{kBertBias, {model.vocabulary}, {}};
  if (tensor != (bert ? kBertDecoderWeight : kHead)) return std::nullopt;
  return tied_parameter(model);
}

bool is_ignored_tensor(const ModelConfig& model, std::string_view tensor) {
  switch (model.family) {
    // Masks of the attention, which old versions stored as buffers.
    case Family::Gpt2: return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias");
    case Family::Bert: return tensor == "bert.embeddings.position_ids" || (!model.tied && tensor == kBertBias);
    case Family::Llama: return tensor.ends_with("rotary_emb.inv_freq");
  }
  return false;
}

}  // namespace chimera

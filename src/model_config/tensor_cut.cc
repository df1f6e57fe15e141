#include "model_config/tensor_cut.h"

#include <array>
#include <functional>
#include <numeric>

#include "core/reject.h"

namespace chimera {
namespace {

/// A layer that the ranks divide: `end` is the end of its name.
struct CutLayer {
  std::string_view end;
  TensorCut weight;
  bool divides_bias = false;  // always in dimension 0; biases of layers that are divided by inputs are whole
};

constexpr std::int64_t kQueryKeyValue = 3;
constexpr bool kOfHeads = true;
constexpr bool kBias = true;
/// Dimension, blocks, and whether shares are whole heads. The first name that fits counts, so a longer name stands
/// before a shorter one with the same end (attention.output.dense, output.dense). For a matrix [out, in], dimension 0
/// divides outputs and 1 divides inputs.
constexpr std::array kCuts = {
    CutLayer{"wte", {0}},
    CutLayer{"embed_tokens", {0}},
    CutLayer{"word_embeddings", {0}},
    CutLayer{"lm_head", {0}},
    CutLayer{"cls.predictions.decoder", {0}},
    CutLayer{"cls.predictions", {0}, kBias},  // has only a bias
    // GPT-2: matrices [in, out]
    CutLayer{"attn.c_attn", {1, kQueryKeyValue, kOfHeads}, kBias},
    CutLayer{"attn.c_proj", {0, 1, kOfHeads}},
    CutLayer{"mlp.c_fc", {1}, kBias},
    CutLayer{"mlp.c_proj", {0}},
    // BERT
    CutLayer{"self.query", {0, 1, kOfHeads}, kBias},
    CutLayer{"self.key", {0, 1, kOfHeads}, kBias},
    CutLayer{"self.value", {0, 1, kOfHeads}, kBias},
    CutLayer{"intermediate.dense", {0}, kBias},
    CutLayer{"attention.output.dense", {1, 1, kOfHeads}},
    CutLayer{"output.dense", {1}},
    // Llama
    CutLayer{"q_proj", {0, 1, kOfHeads}, kBias},
    CutLayer{"k_proj", {0, 1, kOfHeads}, kBias},
    CutLayer{"v_proj", {0, 1, kOfHeads}, kBias},
    CutLayer{"o_proj", {1, 1, kOfHeads}},
    CutLayer{"gate_proj", {0}, kBias},
    CutLayer{"up_proj", {0}, kBias},
    CutLayer{"down_proj", {1}},
};

/// Returns whether every rank has all heads of keys and values; 0 heads: the parameter has none.
bool has_all_keys(std::int64_t heads, std::int64_t tensor_parallel) { return heads > 0 && tensor_parallel > heads; }

}  // namespace

std::optional<TensorCut> tensor_cut(std::string_view parameter) {
  const auto dot = parameter.rfind('.');
  const bool is_bias = dot != parameter.npos && parameter.substr(dot) == ".bias";
  if (!is_bias && !parameter.ends_with(".weight")) return std::nullopt;
  for (const CutLayer& layer : kCuts) {
    if (!parameter.substr(0, dot).ends_with(layer.end)) continue;
    if (is_bias)
      return layer.divides_bias ? std::optional(TensorCut{0, layer.weight.blocks, layer.weight.of_heads})
                                : std::nullopt;
    return layer.weight;
  }
  return std::nullopt;
}

bool is_cut(const ParameterSpec& parameter, std::int64_t tensor_parallel) {
  return tensor_parallel > 1 && tensor_cut(parameter.name) && !has_all_keys(parameter.key_value_heads, tensor_parallel);
}

std::vector<std::int64_t> held_shape(const ParameterSpec& parameter, const TensorPlace& place) {
  std::vector<std::int64_t> shape = parameter.shape;
  if (!is_cut(parameter, place.ranks)) return shape;
  const auto cut = tensor_cut(parameter.name);
  std::int64_t& size = shape[static_cast<std::size_t>(cut->dimension)];
  size = cut->blocks * place.share_of(size / cut->blocks, *cut).count;
  return shape;
}

std::int64_t held_elements(const ParameterSpec& parameter, const TensorPlace& place) {
  const auto shape = held_shape(parameter, place);
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool has_partial_gradient(std::string_view parameter, bool own_tokens) {
  const bool is_of_head = parameter.starts_with("bert.pooler.") || parameter.starts_with("cls.");
  if (own_tokens && !is_of_head && !tensor_cut(parameter)) return true;
  // Not divided, but each rank applies them to its own heads only.
  return parameter.ends_with("self_attn.q_norm.weight") || parameter.ends_with("self_attn.k_norm.weight");
}

std::int64_t head_groups(const ModelConfig& model, std::int64_t tensor_parallel) {
  const std::int64_t heads = key_value_heads_of(model);
  return has_all_keys(heads, tensor_parallel) ? model.heads : heads;
}

std::string find_split_error(const ModelConfig& model, std::int64_t tensor_parallel) {
  if (tensor_parallel == 1) return "";
  // Shares are rounded up, so only the last ranks can be left without one.
  const TensorPlace last{tensor_parallel - 1, tensor_parallel};
  for (const auto& [size, what] : {std::pair{head_groups(model, tensor_parallel), "heads"},
                                   {model.feed_forward, "elements of the feed-forward width"},
                                   {model.vocabulary, "tokens of the vocabulary"}}) {
    if (last.share_of(size).count > 0) continue;
    return fmt::format("parts of {} of the {} {} of model {} leave none to the last rank",
                       TensorPlace{0, tensor_parallel}.share_of(size).count, size, what, model.name);
  }
  const std::int64_t heads = key_value_heads_of(model);
  // With one head of keys and values, all queries use it, however they are divided.
  if (heads == 1 || !has_all_keys(heads, tensor_parallel)) return "";
  if (tensor_parallel % heads == 0 && model.heads % tensor_parallel == 0) return "";
  return fmt::format(
      "exceeds the {} heads of keys and values of model {}, so it must be a multiple of them and divide "
      "its {} heads",
      heads, model.name, model.heads);
}

void require_divisible(const ModelConfig& model, std::int64_t tensor_parallel) {
  const std::string error = find_split_error(model, tensor_parallel);
  if (error.empty()) return;
  std::int64_t fewer = tensor_parallel - 1;
  while (!find_split_error(model, fewer).empty()) --fewer;  // One rank always works
  reject("--tensor-parallel {}: {}; {} is possible", tensor_parallel, error, fewer);
}

}  // namespace chimera

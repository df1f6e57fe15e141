#include "model_config/tensor_cut.h"

#include <fmt/format.h>
#include <array>
#include <functional>
#include <numeric>

#include "core/reject.h"

namespace chimera {
namespace {

struct CutName {
  std::string_view end;  // of the parameter's name
  TensorCut cut;
};

constexpr std::int64_t kQueryKeyValue = 3;
constexpr bool kOfHeads = true;
/// Dimension, blocks, and whether shares are whole heads. The first name that fits counts, so a longer name stands
/// before a shorter one with the same end (attention.output.dense, output.dense). For a matrix [out, in], dimension 0
/// divides outputs and 1 divides inputs. Biases of matrices that are divided by inputs are missing: they are whole.
constexpr std::array kCuts = {
    CutName{"wte.weight", {0}},
    CutName{"embed_tokens.weight", {0}},
    CutName{"word_embeddings.weight", {0}},
    CutName{"lm_head.weight", {0}},
    CutName{"cls.predictions.decoder.weight", {0}},
    CutName{"cls.predictions.bias", {0}},
    // GPT-2: matrices [in, out]
    CutName{"attn.c_attn.weight", {1, kQueryKeyValue, kOfHeads}},
    CutName{"attn.c_attn.bias", {0, kQueryKeyValue, kOfHeads}},
    CutName{"attn.c_proj.weight", {0, 1, kOfHeads}},
    CutName{"mlp.c_fc.weight", {1}},
    CutName{"mlp.c_fc.bias", {0}},
    CutName{"mlp.c_proj.weight", {0}},
    // BERT
    CutName{"self.query.weight", {0, 1, kOfHeads}},
    CutName{"self.query.bias", {0, 1, kOfHeads}},
    CutName{"self.key.weight", {0, 1, kOfHeads}},
    CutName{"self.key.bias", {0, 1, kOfHeads}},
    CutName{"self.value.weight", {0, 1, kOfHeads}},
    CutName{"self.value.bias", {0, 1, kOfHeads}},
    CutName{"intermediate.dense.weight", {0}},
    CutName{"intermediate.dense.bias", {0}},
    CutName{"attention.output.dense.weight", {1, 1, kOfHeads}},
    CutName{"output.dense.weight", {1}},
    // Llama
    CutName{"q_proj.weight", {0, 1, kOfHeads}},
    CutName{"q_proj.bias", {0, 1, kOfHeads}},
    CutName{"k_proj.weight", {0, 1, kOfHeads}},
    CutName{"k_proj.bias", {0, 1, kOfHeads}},
    CutName{"v_proj.weight", {0, 1, kOfHeads}},
    CutName{"v_proj.bias", {0, 1, kOfHeads}},
    CutName{"o_proj.weight", {1, 1, kOfHeads}},
    CutName{"gate_proj.weight", {0}},
    CutName{"gate_proj.bias", {0}},
    CutName{"up_proj.weight", {0}},
    CutName{"up_proj.bias", {0}},
    CutName{"down_proj.weight", {1}},
};

/// Returns whether every rank has all heads of keys and values; 0 heads: the parameter has none.
bool has_all_keys(std::int64_t heads, std::int64_t tensor_parallel) { return heads > 0 && tensor_parallel > heads; }

}  // namespace

std::optional<TensorCut> tensor_cut(std::string_view parameter) {
  const auto* const found =
      std::ranges::find_if(kCuts, [&](const CutName& name) { return parameter.ends_with(name.end); });
  return found == kCuts.end() ? std::nullopt : std::optional(found->cut);
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

#include "model_config/tensor_cut.h"

#include <fmt/format.h>
#include <array>
#include <functional>
#include <numeric>

#include "core/error.h"

namespace chimera {
namespace {

struct CutName {
  std::string_view end;  // of the parameter's name
  TensorCut cut;
};

constexpr std::int64_t kQueryKeyValue = 3;
constexpr std::array kCuts = {
    CutName{"wte.weight", {0}},
    CutName{"embed_tokens.weight", {0}},
    CutName{"word_embeddings.weight", {0}},
    CutName{"lm_head.weight", {0}},
    CutName{"cls.predictions.decoder.weight", {0}},
    CutName{"cls.predictions.bias", {0}},
    // GPT-2: matrices [in, out]
    CutName{"attn.c_attn.weight", {1, kQueryKeyValue}},
    CutName{"attn.c_attn.bias", {0, kQueryKeyValue}},
    CutName{"attn.c_proj.weight", {0}},
    CutName{"mlp.c_fc.weight", {1}},
    CutName{"mlp.c_fc.bias", {0}},
    CutName{"mlp.c_proj.weight", {0}},
    // BERT
    CutName{"self.query.weight", {0}},
    CutName{"self.query.bias", {0}},
    CutName{"self.key.weight", {0}},
    CutName{"self.key.bias", {0}},
    CutName{"self.value.weight", {0}},
    CutName{"self.value.bias", {0}},
    CutName{"intermediate.dense.weight", {0}},
    CutName{"intermediate.dense.bias", {0}},
    CutName{"output.dense.weight", {1}},
    // Llama
    CutName{"q_proj.weight", {0}},
    CutName{"q_proj.bias", {0}},
    CutName{"k_proj.weight", {0}},
    CutName{"k_proj.bias", {0}},
    CutName{"v_proj.weight", {0}},
    CutName{"v_proj.bias", {0}},
    CutName{"o_proj.weight", {1}},
    CutName{"gate_proj.weight", {0}},
    CutName{"gate_proj.bias", {0}},
    CutName{"up_proj.weight", {0}},
    CutName{"up_proj.bias", {0}},
    CutName{"down_proj.weight", {1}},
};

}  // namespace

std::optional<TensorCut> tensor_cut(std::string_view parameter) {
  const auto* const found =
      std::ranges::find_if(kCuts, [&](const CutName& name) { return parameter.ends_with(name.end); });
  return found == kCuts.end() ? std::nullopt : std::optional(found->cut);
}

bool is_cut(const ParameterSpec& parameter, std::int64_t tensor_parallel) {
  return tensor_parallel > 1 && tensor_cut(parameter.name) && parameter.key_value_heads % tensor_parallel == 0;
}

std::vector<std::int64_t> held_shape(const ParameterSpec& parameter, const TensorPlace& place) {
  std::vector<std::int64_t> shape = parameter.shape;
  if (!is_cut(parameter, place.ranks)) return shape;
  const auto cut = tensor_cut(parameter.name);
  std::int64_t& size = shape[static_cast<std::size_t>(cut->dimension)];
  size = cut->blocks * place.share_of(size / cut->blocks).count;
  return shape;
}

std::int64_t held_elements(const ParameterSpec& parameter, const TensorPlace& place) {
  const auto shape = held_shape(parameter, place);
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool has_partial_gradient(std::string_view parameter, bool own_tokens) {
  const bool is_of_head = parameter.starts_with("bert.pooler.") || parameter.starts_with("cls.");
  if (own_tokens && !is_of_head && !tensor_cut(parameter)) return true;
  return parameter.ends_with("self_attn.q_norm.weight") || parameter.ends_with("self_attn.k_norm.weight");
}

bool can_share_keys(const ModelConfig& model, std::int64_t tensor_parallel) {
  const std::int64_t heads = key_value_heads_of(model);
  return heads % tensor_parallel == 0 || tensor_parallel % heads == 0;
}

void require_divisible(const ModelConfig& model, std::int64_t tensor_parallel) {
  const auto require = [&](std::int64_t number, const char* what, bool is_possible) {
    if (is_possible) return;
    throw ConfigError(fmt::format("--tensor-parallel {}: does not divide the {} {} of model {}", tensor_parallel,
                                  number, what, model.name));
  };
  require(model.heads, "heads", model.heads % tensor_parallel == 0);
  require(key_value_heads_of(model), "heads of keys and values", can_share_keys(model, tensor_parallel));
  require(model.feed_forward, "elements of the feed-forward width", model.feed_forward % tensor_parallel == 0);
  const TensorPlace last{tensor_parallel - 1, tensor_parallel};
  if (last.share_of(model.vocabulary).count > 0) return;
  throw ConfigError(fmt::format("--tensor-parallel {}: the vocabulary of {} tokens leaves none to the last rank",
                                tensor_parallel, model.vocabulary));
}

}  // namespace chimera

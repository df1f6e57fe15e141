#include "model/llama_stage.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <algorithm>
#include <numbers>

#include "core/error.h"
#include "model/embedding.h"
#include "model/layers.h"

// Rotation in one pass; ATen operations would take about six, and keep their results.

namespace chimera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Rotates one head: `in` and `out` [2 * half] must not overlap; `direction` is 1 or -1 (inverse).
template <class Element>
void turn(const Element* __restrict in, Element* __restrict out, const Element* __restrict cosine,
          const Element* __restrict sine, std::int64_t half, at::opmath_type<Element> direction) {
  using Wide = at::opmath_type<Element>;
  for (std::int64_t j = 0; j < half; ++j) {
    const Wide a = in[j];
    const Wide b = in[j + half];
    const Wide c = cosine[j];
    const Wide s = direction * static_cast<Wide>(sine[j]);
    out[j] = static_cast<Element>(a * c - b * s);
    out[j + half] = static_cast<Element>(b * c + a * s);
  }
}

at::Tensor rotated_on_cpu(const at::Tensor& input, const RotaryTable& table, double direction) {
  const at::Tensor in = input.contiguous();
  const at::Tensor out = at::empty_like(in);
  const std::int64_t half = table.cosine.size(1);
  const std::int64_t length = in.size(1);
  const std::int64_t width = in.size(2);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, in.scalar_type(), "rotate", [&] {
    const scalar_t* from = in.const_data_ptr<scalar_t>();
    const scalar_t* cosine = table.cosine.const_data_ptr<scalar_t>();
    const scalar_t* sine = table.sine.const_data_ptr<scalar_t>();
    scalar_t* to = out.data_ptr<scalar_t>();
    const auto run = [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t token = first; token < end; ++token) {
        const std::int64_t angles = token % length * half;
        for (std::int64_t head = token * width; head < (token + 1) * width; head += 2 * half) {
          turn<scalar_t>(from + head, to + head, cosine + angles, sine + angles, half,
                         static_cast<at::opmath_type<scalar_t>>(direction));
        }
      }
    };
    at::parallel_for(0, in.size(0) * length, std::max<std::int64_t>(1, at::internal::GRAIN_SIZE / width), run);
  });
  return out;
}

at::Tensor rotated_on_device(const at::Tensor& input, const RotaryTable& table, double direction) {
  const at::Tensor cosine = table.cosine.unsqueeze(1).unsqueeze(1);  // [L, 1, 1, d / 2]
  const at::Tensor sine = table.sine.unsqueeze(1);                   // [L, 1, d / 2]
  const at::Tensor in = input.reshape({input.size(0), input.size(1), -1, 2, table.cosine.size(1)});
  const at::Tensor out = in * cosine;
  out.select(3, 0).addcmul_(in.select(3, 1), sine, -direction);
  out.select(3, 1).addcmul_(in.select(3, 0), sine, direction);
  return out.view(input.sizes());
}

at::Tensor turned(const at::Tensor& input, const RotaryTable& table, double direction) {
  return input.is_cpu() ? rotated_on_cpu(input, table, direction) : rotated_on_device(input, table, direction);
}

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return turned(input, {cosine, sine}, 1);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    return {turned(output_gradients[0], {saved[0], saved[1]}, -1), at::Tensor(), at::Tensor()};
  }
};

/// Divides frequencies with few turns within the original positions by the factor, keeps those with many turns, and
/// interpolates between.
at::Tensor llama3_frequencies(const at::Tensor& frequencies, const RopeScaling& scaling) {
  const at::Tensor turns = frequencies * (static_cast<double>(scaling.original_positions) / (2 * std::numbers::pi));
  const at::Tensor stays =
      (turns - scaling.low_frequency_factor) / (scaling.high_frequency_factor - scaling.low_frequency_factor);
  const at::Tensor share = stays.clamp(0, 1);
  return (1 - share) * frequencies / scaling.factor + share * frequencies;
}

}  // namespace

RotaryTable RotaryTable::slice(std::int64_t first, std::int64_t end) const {
  return {cosine.narrow(0, first, end - first), sine.narrow(0, first, end - first)};
}

at::Tensor rotary_frequencies(const ModelConfig& config, const at::TensorOptions& options) {
  const at::ScalarType wide = at::promote_types(options.dtype().toScalarType(), at::kFloat);
  const auto size = static_cast<double>(head_size_of(config));
  const at::Tensor exponents = at::arange(0, head_size_of(config), 2, options.dtype(wide)) / size;
  const at::Tensor frequencies = at::pow(config.rope_theta, exponents).reciprocal();
  switch (config.rope_scaling.type) {
    case RopeScalingType::None: return frequencies;
    case RopeScalingType::Linear: return frequencies / config.rope_scaling.factor;
    case RopeScalingType::Llama3: return llama3_frequencies(frequencies, config.rope_scaling);
  }
  return frequencies;
}

RotaryTable rotary_table(const ModelConfig& config, std::int64_t length, const at::TensorOptions& options) {
  const at::NoGradGuard no_graph;
  const at::Tensor frequencies = rotary_frequencies(config, options);
  const at::Tensor angles = at::arange(length, frequencies.options()).unsqueeze(1) * frequencies;
  return {angles.cos().to(options.dtype()), angles.sin().to(options.dtype())};
}

at::Tensor rotate(const at::Tensor& input, const RotaryTable& table) {
  return RotateFunction::apply(input, table.cosine, table.sine);
}

LlamaStage::LlamaStage(const ModelConfig& config, const StageLayers& layers, std::vector<Parameter> parameters,
                       const TiedLeaves& tied, at::ScalarType compute)
    : TransformerStage(config, layers, std::move(parameters), tied, compute) {
  if (layers.embedding) embedding_ = token_table("model.embed_tokens.weight");
  for (const std::string& name : block_names("model.layers.")) {
    const std::string attention = name + ".self_attn.";
    const auto head_norm = [&](const char* which) {
      return config.query_key_norm ? rms_norm_named(attention + which) : RmsNorm{};
    };
    blocks_.push_back({.input_norm = rms_norm_named(name + ".input_layernorm"),
                       .query_key_value = packed_layers(
                           {attention + "q_proj", attention + "k_proj", attention + "v_proj"}, !config.query_key_norm),
                       .query_norm = head_norm("q_norm"),
                       .key_norm = head_norm("k_norm"),
                       .attention_output = linear_named(attention + "o_proj"),
                       .post_attention_norm = rms_norm_named(name + ".post_attention_layernorm"),
                       .gate_and_up = packed_layers({name + ".mlp.gate_proj", name + ".mlp.up_proj"}),
                       .down = linear_named(name + ".mlp.down_proj")});
  }
  if (layers.head) {
    norm_ = rms_norm_named("model.norm");
    set_output("lm_head.weight");
  }
}

RmsNorm LlamaStage::rms_norm_named(const std::string& name) {
  return {.weight = weight(name + ".weight"), .epsilon = norm_epsilon_of(config())};
}

std::vector<Linear> LlamaStage::packed_layers(const std::vector<std::string>& names, bool may_pack) {
  std::vector<at::Tensor> matrices;
  for (const std::string& name : names) {
    may_pack = may_pack && !has_parameter(name + ".bias");
    matrices.push_back(parameter(name + ".weight"));
  }
  if (const at::Tensor matrix = may_pack ? packed_for_compute(matrices) : at::Tensor(); matrix.defined()) {
    return {{.weight = matrix}};
  }
  std::vector<Linear> layers;
  for (const std::string& name : names) layers.push_back(linear_named(name));
  return layers;
}

RotaryTable LlamaStage::table_of(std::int64_t first, std::int64_t end, const at::Tensor& hidden) const {
  if (end > config().positions) {
    throw ConfigError(
        fmt::format("a sequence of {} tokens is longer than the model's {} positions", end, config().positions));
  }
  require_within_window(config(), end);
  if (table_.length() < end) {
    const std::int64_t ahead = std::min(2 * table_.length(), config().positions);
    table_ = rotary_table(config(), std::max(end, ahead), hidden.options());
  }
  return table_.slice(first, end);
}

at::Tensor LlamaStage::positioned(const at::Tensor& projection, const RmsNorm& norm, std::int64_t first) const {
  const RotaryTable table = table_of(first, first + projection.size(1), projection);
  if (!norm.weight.defined()) return rotate(projection, table);
  const at::Tensor heads = projection.unflatten(2, {-1, head_size_of(config())});
  return rotate(rms_norm(heads, norm).flatten(2), table);
}

QueryKeyValue LlamaStage::projections(const Block& layer, const at::Tensor& normed, std::int64_t first) const {
  const std::vector<Linear>& layers = layer.query_key_value;
  if (layers.size() == 3) {
    return {.query = positioned(linear(normed, layers[0]), layer.query_norm, first),
            .key = positioned(linear(normed, layers[1]), layer.key_norm, first),
            .value = linear(normed, layers[2])};
  }
  const std::int64_t query = config().heads * head_size_of(config());
  const std::int64_t key = key_value_heads_of(config()) * head_size_of(config());
  const auto parts = linear(normed, layers[0]).split({query + key, key}, /*dim=*/2);
  const auto turned = positioned(parts[0], /*norm=*/{}, first).split({query, key}, /*dim=*/2);
  return {.query = turned[0], .key = turned[1], .value = parts[1]};
}

at::Tensor LlamaStage::embed(const MicroBatch& batch) const {
  const at::Tensor embedded = token_embedding(embedding_, batch.tokens);
  return dropout(embedded.to(compute_type()), batch.dropout, DropoutSite::Embedding);
}

at::Tensor LlamaStage::attention(std::size_t index, const at::Tensor& hidden, const at::Tensor& mask,
                                 const MicroBatch& batch) const {
  const Block& layer = blocks_[index];
  const Dropout masks = block_dropout(index, batch);
  const at::Tensor normed = rms_norm(hidden, layer.input_norm);
  const QueryKeyValue seen = with_earlier(index, projections(layer, normed, first_position(batch)), batch);
  const at::Tensor attended = causal_attention(seen, config().heads, masks, mask);
  return hidden + dropout(linear(attended, layer.attention_output), masks, DropoutSite::AttentionOutput);
}

at::Tensor LlamaStage::feed_forward(std::size_t index, const at::Tensor& sum, const MicroBatch& batch) const {
  const Block& layer = blocks_[index];
  const at::Tensor gated = rms_norm(sum, layer.post_attention_norm);
  const std::vector<Linear>& layers = layer.gate_and_up;
  const at::Tensor inner = layers.size() == 1 ? swiglu(linear(gated, layers[0]))
                                              : swiglu(linear(gated, layers[0]), linear(gated, layers[1]));
  const Dropout masks = block_dropout(index, batch);
  return sum + dropout(linear(inner, layer.down), masks, DropoutSite::FeedForwardOutput);
}

}  // namespace chimera

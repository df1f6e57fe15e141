#include "model/layers.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <cmath>
#include <limits>
#include <optional>

#include "core/reject.h"
#include "model/autograd.h"

// Three kinds of attention share this file. attention() calls ATen's fused kernels or, with dropout, computes the
// probabilities in steps. PartsAttentionFunction computes causal attention on the CPU part by part, for documents that
// must not see each other and for slices. Flash attention computes the latter on GPUs. causal_attention() chooses among
// them.

namespace chimera {
namespace {

constexpr double kNoDropout = 0;                                     // argument of ATen's attention
constexpr double kNever = -std::numeric_limits<double>::infinity();  // score of a key that is hidden

/// Autograd would keep silu(gate) too; backward computes it again from the gate, which costs no product.
struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    // In place on the fresh result of silu, so that no third tensor of this size exists.
    return at::silu(gate).mul_(up);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& gate = saved[0];
    const at::Tensor& gradient = output_gradients[0];
    at::Tensor gate_gradient = gradient * saved[1];
    // d/dgate = silu'(gate) * (gradient * up), d/dup = silu(gate) * gradient.
    at::silu_backward_out(gate_gradient, gate_gradient, gate);
    return {gate_gradient, at::silu(gate).mul_(gradient)};
  }
};

/// Writes the gradients of both halves of its input into one tensor; autograd would concatenate them.
struct PackedSwigluFunction : torch::autograd::Function<PackedSwigluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_and_up) {
    context->save_for_backward({gate_and_up});
    const auto halves = gate_and_up.chunk(2, -1);
    return at::silu(halves[0]).mul_(halves[1]);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor gate_and_up = context->get_saved_variables()[0];
    const auto halves = gate_and_up.chunk(2, -1);
    const at::Tensor& gradient = output_gradients[0];
    at::Tensor result = at::empty_like(gate_and_up);
    auto gradients = result.chunk(2, -1);
    at::mul_out(gradients[0], gradient, halves[1]);
    at::silu_backward_out(gradients[0], gradients[0], halves[0]);
    at::silu_out(gradients[1], halves[0]).mul_(gradient);
    return {result};
  }
};

/// Computes sum[indices[i]] += rows[i] in order. On a GPU, index_add_ adds in any order; index_put_ sorts.
void add_rows(at::Tensor sum, const at::Tensor& indices, const at::Tensor& rows) {
  const at::NoGradGuard no_graph;
  if (sum.is_cpu())
    sum.index_add_(0, indices, rows);
  else
    sum.index_put_({indices}, rows, /*accumulate=*/true);
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table, const at::Tensor& tokens) {
    // The table is a parameter, so it is saved with save_leaves(). Autograd itself gets no gradient for it (backward
    // returns an undefined tensor): the queue adds to table.grad() now or in op W.
    context->save_for_backward({tokens});
    save_leaves(context, {table});
    return at::embedding(table, tokens);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor tokens = context->get_saved_variables()[0];
    saved_queue(context)->submit([table = saved_leaves(context)[0], tokens, gradient = output_gradients[0]] {
      add_rows(gradient_of(table), tokens.flatten(), gradient.flatten(0, -2));
    });
    return {at::Tensor(), at::Tensor()};
  }
};

/// The gradient of a row is the sum over sequences; it is added as one term, so that the order of addition is fixed.
struct PositionFunction : torch::autograd::Function<PositionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& embedded, const at::Tensor& table,
                            std::int64_t first) {
    save_leaves(context, {table});
    context->saved_data["first"] = first;
    return embedded + table.narrow(0, first, embedded.size(1));
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor& gradient = output_gradients[0];
    const std::int64_t first = context->saved_data["first"].toInt();
    saved_queue(context)->submit([table = saved_leaves(context)[0], gradient, first] {
      const at::NoGradGuard no_graph;
      // Only the rows of these positions: in a slice, the positions of other slices get nothing.
      gradient_of(table).narrow(0, first, gradient.size(1)).add_(gradient.sum(0));
    });
    return {gradient, at::Tensor(), at::Tensor()};
  }
};

using RepeatedFunction = std::function<at::Tensor(const at::Tensor&)>;

/// Runs the backward of the second call inside its own backward, as PyTorch's reentrant checkpoints do. Layers then add
/// to the gradients of their parameters directly or through the queue.
struct CheckpointFunction : torch::autograd::Function<CheckpointFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const RepeatedFunction& function) {
    context->save_for_backward({input});
    hold(context, "function", function);
    hold(context, "queue", WeightGradients::current());
    return function(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    // A new leaf, at which the inner backward stops. Its gradient is the result.
    const at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    at::Tensor output;
    {
      const at::AutoGradMode with_graph(true);
      // The layers inside save the current queue again. It must be the queue of the first call: by now another
      // micro-batch's queue may be current on this thread.
      const WeightGradients::Scope scope(held<WeightGradients::Pointer>(context, "queue"));
      output = held<RepeatedFunction>(context, "function")(input);
    }
    // Not grad(): parameters inside accumulate as in a backward without a checkpoint, with the same bits.
    torch::autograd::backward({output}, {output_gradients[0]});
    return {input.grad(), at::Tensor()};
  }
};

/// [b, L, heads * d] -> [b, heads, L, d] with d = `head_size`.
at::Tensor split_heads(const at::Tensor& x, std::int64_t head_size) {
  return x.view({x.size(0), x.size(1), -1, head_size}).transpose(1, 2);
}

at::Tensor join_heads(const at::Tensor& x) { return x.transpose(1, 2).flatten(2); }

/// Keys that each token attends to. `mask` ([b, heads, L, keys] or expandable; empty: all keys) is true for these keys,
/// or added to scores: 0 for these keys, minus infinity elsewhere. `causal` hides later keys and excludes `mask`.
struct Attended {
  std::optional<at::Tensor> mask;
  bool causal = false;
};

void hide(at::Tensor& scores, const Attended& attended) {
  const bool is_added = attended.mask && attended.mask->scalar_type() != at::kBool;
  if (is_added) scores.add_(*attended.mask);
  if (attended.mask && !is_added) scores.masked_fill_(attended.mask->logical_not(), kNever);
  if (!attended.causal) return;
  const std::int64_t length = scores.size(-1);
  // True above the diagonal: keys after the query.
  scores.masked_fill_(at::ones({length, length}, scores.options().dtype(at::kBool)).triu(1), kNever);
}

/// Computes attention [b, heads, L, d] in separate operations, so that dropout can mask the probabilities. Query heads
/// that share keys and values form one matrix with more rows.
at::Tensor attention_with_dropout(const QueryKeyValue& split, const Attended& attended, const Dropout& masks) {
  const double scale = 1 / std::sqrt(static_cast<double>(split.query.size(-1)));
  const std::int64_t shared = split.key.size(1);
  // One product per group of query heads; repeating keys and values would take memory for each copy.
  const bool is_grouped = shared != split.query.size(1);
  // [b, heads, L, n] to [b, shared, heads / shared * L, n] and back.
  const auto grouped = [&](const at::Tensor& x) {
    return is_grouped ? x.reshape({x.size(0), shared, -1, x.size(3)}) : x;
  };
  const auto ungrouped = [&](const at::Tensor& x) {
    return is_grouped ? x.view({x.size(0), split.query.size(1), -1, x.size(3)}) : x;
  };
  // Queries are scaled, not scores, which are L / d times as many.
  at::Tensor scores = ungrouped(grouped(split.query * scale).matmul(split.key.transpose(2, 3)));
  hide(scores, attended);
  // Softmax and dropout in at least float32, as fused kernels do it; the product with the values in their own type.
  const at::Tensor probabilities = scores.softmax(-1, at::promote_types(scores.scalar_type(), at::kFloat));
  const at::Tensor weights =
      dropout(probabilities, masks, DropoutSite::AttentionProbabilities).to(split.value.scalar_type());
  return ungrouped(grouped(weights).matmul(split.value));
}

QueryKeyValue split_heads(const QueryKeyValue& projections, std::int64_t heads) {
  const std::int64_t head_size = projections.query.size(2) / heads;
  return {split_heads(projections.query, head_size), split_heads(projections.key, head_size),
          split_heads(projections.value, head_size)};
}

at::Tensor attention(const QueryKeyValue& projections, std::int64_t heads, const Attended& attended,
                     const Dropout& masks) {
  const QueryKeyValue split = split_heads(projections, heads);
  if (masks.is_active()) return join_heads(attention_with_dropout(split, attended, masks));
  // The last argument says that query heads share keys and values (grouped-query attention).
  return join_heads(at::scaled_dot_product_attention(split.query, split.key, split.value, attended.mask, kNoDropout,
                                                     attended.causal, /*scale=*/std::nullopt,
                                                     split.key.size(1) != heads));
}

/// Returns the causal mask for queries [b, L, ...] of tokens after `earlier` other tokens.
Attended behind(std::int64_t earlier, const at::Tensor& queries) {
  const std::int64_t length = queries.size(1);
  // A single token attends to all keys, which needs no mask.
  if (length == 1) return {};
  return {.mask = at::ones({length, earlier + length}, queries.options().dtype(at::kBool)).tril(earlier)};
}

/// Causal attention of a part on the CPU. Its keys are those of earlier tokens and its own, which need no mask.
class PartAttention {
 public:
  PartAttention(const AttentionPart& part, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value)
      : query_(queries_of(part, query)), key_(keys_of(part, key)), value_(keys_of(part, value)) {}

  static at::Tensor queries_of(const AttentionPart& part, const at::Tensor& all) {
    return all.narrow(0, part.first_sample, part.samples).narrow(2, part.first_query, part.queries);
  }
  static at::Tensor keys_of(const AttentionPart& part, const at::Tensor& all) {
    return all.narrow(0, part.first_sample, part.samples).narrow(2, part.first_key, part.keys);
  }

  /// Writes the output and the logarithm of each softmax's sum.
  void forward(at::Tensor output, at::Tensor sums) const {
    auto [own, own_sum] = at::_scaled_dot_product_flash_attention_for_cpu(query_, own_keys(key_), own_keys(value_),
                                                                          kNoDropout, /*is_causal=*/true);
    if (earlier() == 0) {
      output.copy_(own);
      sums.copy_(own_sum);
      return;
    }
    const auto [before, before_sum] =
        at::_scaled_dot_product_flash_attention_for_cpu(query_, earlier_keys(key_), earlier_keys(value_));
    // Two softmaxes over parts of the keys, weighted by their sums of exponentials, are the softmax over all keys.
    const at::Tensor sum = at::logaddexp(before_sum, own_sum);
    // Factor exp(before_sum) / exp(sum), between 0 and 1; the sums themselves could overflow.
    const at::Tensor before_share = (before_sum - sum).exp_().unsqueeze(3);
    const at::Tensor own_share = (own_sum - sum).exp_().unsqueeze(3);
    output.copy_((before * before_share).add_(own * own_share));
    sums.copy_(sum);
  }

  void backward(const at::Tensor& output_gradient, const at::Tensor& output, const at::Tensor& sums,
                at::Tensor query_gradient, at::Tensor key_gradient, at::Tensor value_gradient) const {
    // ATen's backward recomputes probabilities as exp(score - sum). With the output and the sums over all keys of the
    // part, it gives the right gradients for some of the keys alone.
    const auto gradients = [&](const at::Tensor& key, const at::Tensor& value, bool is_causal) {
      return at::_scaled_dot_product_flash_attention_for_cpu_backward(output_gradient, query_, key, value, output, sums,
                                                                      kNoDropout, is_causal);
    };
    const auto [own_query, own_key, own_value] = gradients(own_keys(key_), own_keys(value_), /*is_causal=*/true);
    own_keys(key_gradient).copy_(own_key);
    own_keys(value_gradient).copy_(own_value);
    if (earlier() == 0) {
      query_gradient.copy_(own_query);
      return;
    }
    const auto [query, key, value] = gradients(earlier_keys(key_), earlier_keys(value_), /*is_causal=*/false);
    // A query sees both halves of the keys; each key is in one half.
    query_gradient.copy_(query).add_(own_query);
    earlier_keys(key_gradient).copy_(key);
    earlier_keys(value_gradient).copy_(value);
  }

 private:
  [[nodiscard]] std::int64_t earlier() const { return key_.size(2) - query_.size(2); }
  [[nodiscard]] at::Tensor earlier_keys(const at::Tensor& keys) const { return keys.narrow(2, 0, earlier()); }
  [[nodiscard]] at::Tensor own_keys(const at::Tensor& keys) const { return keys.narrow(2, earlier(), query_.size(2)); }

  at::Tensor query_;
  at::Tensor key_;
  at::Tensor value_;
};

/// Computes the attention of each part by itself, so that tokens of other parts cost nothing. Parts contain every query
/// once, and every key at most once.
struct PartsAttentionFunction : torch::autograd::Function<PartsAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value, const AttentionParts& parts) {
    const auto all = [&](const at::TensorOptions& options, at::IntArrayRef sizes) {
      // Memory in the order [b, L, heads, d] but seen as [b, heads, L, d]: join_heads() then needs no copy.
      return at::empty(sizes, options).transpose(1, 2);  // as join_heads() wants it
    };
    const std::int64_t samples = query.size(0);
    const std::int64_t heads = query.size(1);
    const std::int64_t length = query.size(2);
    at::Tensor output = all(query.options(), {samples, length, heads, query.size(3)});
    const at::Tensor sums =
        all(query.options().dtype(at::promote_types(query.scalar_type(), at::kFloat)), {samples, length, heads});
    // Each call writes its own part of output and sums, so that no part is copied or joined.
    for (const AttentionPart& part : parts) {
      PartAttention(part, query, key, value)
          .forward(PartAttention::queries_of(part, output), PartAttention::queries_of(part, sums));
    }
    hold(context, "parts", parts);
    context->save_for_backward({query, key, value, output, sums});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor query = at::empty_like(saved[0]);
    // Queries of a slice may attend to no token of an earlier document.
    const bool skips = saved[0].size(2) != saved[1].size(2);
    const at::Tensor key = skips ? at::zeros_like(saved[1]) : at::empty_like(saved[1]);
    const at::Tensor value = skips ? at::zeros_like(saved[2]) : at::empty_like(saved[2]);
    for (const AttentionPart& part : held<AttentionParts>(context, "parts")) {
      const auto own = [&](const at::Tensor& all) { return PartAttention::queries_of(part, all); };
      PartAttention(part, saved[0], saved[1], saved[2])
          .backward(own(output_gradients[0]), own(saved[3]), own(saved[4]), own(query),
                    PartAttention::keys_of(part, key), PartAttention::keys_of(part, value));
    }
    return {query, key, value, at::Tensor()};
  }
};

/// Adds the gradients of weight and bias through the queue; autograd would convert and add each in kernels of its own.
struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, double epsilon) {
    // `mean` and `scale` (reciprocal standard deviation) are per row; backward reads them instead of computing them
    // again.
    auto [output, mean, scale] = at::native_layer_norm(input, weight.sizes(), weight, bias, epsilon);
    context->save_for_backward({input, mean, scale});
    save_leaves(context, {weight, bias});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    const std::vector<at::Tensor> leaves = saved_leaves(context);
    const at::Tensor& weight = leaves[0];
    const at::Tensor& bias = leaves[1];
    const auto [input_gradient, weight_term, bias_term] = at::native_layer_norm_backward(
        output_gradients[0].contiguous(), saved[0], weight.sizes(), saved[1], saved[2], weight, bias,
        {context->needs_input_grad(0), weight.requires_grad(), bias.requires_grad()});
    const auto queue = saved_queue(context);
    queue->submit([=, weight_term = weight_term, bias_term = bias_term, queue = queue.get()] {
      if (weight_term.defined()) add_to_gradient(weight, weight_term, queue);
      if (bias_term.defined()) add_to_gradient(bias, bias_term, queue);
    });
    return {input_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

/// Whether a GPU's flash attention can hide later keys from the last tokens, where a mask would cost more. It also
/// serves one token: scaled_dot_product_attention() may choose cuDNN, which makes a plan for each number of keys.
bool has_flash(const QueryKeyValue& split) {
  constexpr std::int64_t kMultiple = 8;
  constexpr std::int64_t kMax = 256;
  const std::int64_t size = split.query.size(3);
  return !split.query.is_cpu() && at::isReducedFloatingType(split.query.scalar_type()) && size % kMultiple == 0 &&
         size <= kMax;
}

/// Flash attention aligns its causal mask with the last key, scaled_dot_product_attention() with the first
/// (torch/nn/attention/bias.py, LOWER_RIGHT).
at::Tensor flash_attention(const QueryKeyValue& split) {
  return std::get<0>(at::_scaled_dot_product_flash_attention(split.query, split.key, split.value, kNoDropout,
                                                             /*is_causal=*/true));
}

}  // namespace

thread_local bool StayOnDevice::active_ = false;

const at::Tensor& only_value(const TensorVector& values) {
  if (values.size() != 1) reject("takes one tensor, but gets {}", values.size());
  return values.front();
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return SwigluFunction::apply(gate, up); }

at::Tensor swiglu(const at::Tensor& gate_and_up) { return PackedSwigluFunction::apply(gate_and_up); }

at::Tensor token_embedding(const at::Tensor& table, const at::Tensor& tokens) {
  require_below(tokens, table.size(0), "token");
  return EmbeddingFunction::apply(table, tokens);
}

at::Tensor add_positions(const at::Tensor& embedded, const at::Tensor& table, std::int64_t first) {
  const std::int64_t length = first + embedded.size(1);
  if (length > table.size(0))
    reject("a sequence of {} tokens is longer than the model's {} positions", length, table.size(0));
  return PositionFunction::apply(embedded, table, first);
}

at::Tensor recompute_in_backward(const RepeatedFunction& function, const at::Tensor& input) {
  if (!at::GradMode::is_enabled() || !input.requires_grad()) return function(input);
  return CheckpointFunction::apply(input, function);
}

at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& layer) {
  // On the CPU, launching a kernel costs little, so autograd's own function does. It adds the gradients of weight and
  // bias already in op I.
  if (!input.is_cpu()) return LayerNormFunction::apply(input, layer.weight, layer.bias, layer.epsilon);
  return at::layer_norm(input, layer.weight.sizes(), layer.weight, layer.bias, layer.epsilon);
}

at::Tensor gelu(const at::Tensor& input, Gelu kind) { return at::gelu(input, kind == Gelu::Tanh ? "tanh" : "none"); }

at::Tensor causal_attention(const QueryKeyValue& projections, std::int64_t heads, const Dropout& masks,
                            const AttentionLimits& limits) {
  // From here on, attention is limited by causality and, if there are parts, by documents.
  if (limits.mask.defined()) return attention(projections, heads, {.mask = limits.mask}, masks);
  const std::int64_t length = projections.query.size(1);
  const std::int64_t earlier = projections.key.size(1) - length;
  // Fused kernels know the causal mask of a whole sequence; later tokens alone need another way.
  if (earlier == 0 && !limits.parts)
    return attention(projections, heads, {.mask = std::nullopt, .causal = true}, masks);
  const QueryKeyValue split = split_heads(projections, heads);
  if (!masks.is_active() && has_flash(split)) return join_heads(flash_attention(split));
  // Dropout needs the probabilities, one token needs no mask, and other devices lack the CPU's kernel with sums.
  if (!limits.parts && (masks.is_active() || length == 1 || !projections.query.is_cpu()))
    return attention(projections, heads, behind(earlier, projections.query), masks);
  // Without documents, a slice is one part: all its queries, and the keys of all tokens so far.
  const AttentionPart all{.samples = projections.query.size(0), .queries = length, .keys = earlier + length};
  return join_heads(PartsAttentionFunction::apply(split.query, split.key, split.value,
                                                  limits.parts ? *limits.parts : AttentionParts{all}));
}

AttentionParts document_parts(const at::Tensor& documents, std::int64_t first) {
  const at::Tensor rows = documents.contiguous();
  const std::int64_t length = rows.size(1);
  AttentionParts parts;
  for (std::int64_t sample = 0; sample < rows.size(0); ++sample) {
    const std::int64_t* numbers = rows.data_ptr<std::int64_t>() + sample * length;
    // Tokens begin .. end - 1 are one document. Numbers need not ascend; a change of the number is the border.
    for (std::int64_t begin = 0, end = 0; begin < length; begin = end) {
      while (end < length && numbers[end] == numbers[begin]) ++end;
      if (end <= first) continue;  // no query
      const std::int64_t query = std::max(begin, first);
      parts.push_back({.first_sample = sample,
                       .samples = 1,
                       .first_query = query - first,
                       .queries = end - query,
                       .first_key = begin,
                       .keys = end - begin});
    }
  }
  return parts;
}

AttentionLimits document_limits(const at::Tensor& documents, at::ScalarType type, std::int64_t first, bool dropout) {
  if (!documents.is_cpu() || dropout) return {.mask = document_mask(documents, type, first)};
  AttentionParts parts = document_parts(documents, first);
  const auto is_whole = [&](const AttentionPart& part) { return part.keys == documents.size(1); };
  // Every sample is one document, so plain causal attention over the batch is the same and faster.
  if (std::ranges::all_of(parts, is_whole)) return {};
  return {.mask = {}, .parts = std::make_shared<const AttentionParts>(std::move(parts))};
}

at::Tensor document_mask(const at::Tensor& documents, at::ScalarType type, std::int64_t first) {
  const at::Tensor queries = documents.narrow(1, first, documents.size(1) - first);
  const at::Tensor same = queries.unsqueeze(2).eq(documents.unsqueeze(1));  // [b, L - first, L]
  return at::zeros(same.sizes(), same.options().dtype(type))
      // Query i is token first + i, so the diagonal up to which keys are visible is shifted by `first`.
      .masked_fill_(same.tril(first).logical_not(), kNever)
      .unsqueeze(1);
}

at::Tensor masked_attention(const QueryKeyValue& projections, const at::Tensor& mask, std::int64_t heads,
                            const Dropout& masks) {
  Attended attended;
  if (mask.defined()) attended.mask = mask.view({mask.size(0), 1, 1, mask.size(1)});
  return attention(projections, heads, attended, masks);
}

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  const std::int64_t vocabulary = logits.size(-1);
  require_below(targets, vocabulary, "target");
  const at::ScalarType dtype = at::promote_types(logits.scalar_type(), at::kFloat);
  // The logits of a narrow type are widened first, so that the loss does not have the 8 bits of bfloat16.
  return at::cross_entropy_loss(logits.reshape({-1, vocabulary}).to(dtype), targets.reshape({-1}), {},
                                at::Reduction::Sum, kIgnored);
}

at::Tensor target_indices(const at::Tensor& targets) { return (targets != kIgnored).nonzero().squeeze(1); }

void require_below(const at::Tensor& values, std::int64_t vocabulary, const char* what) {
  // Here, because torch's own error names an index without its token or target.
  if (!values.is_cpu() || values.numel() == 0) return;
  const auto largest = values.max().item<std::int64_t>();
  if (largest < vocabulary) return;
  reject("{} {} lies outside the model's vocabulary of {}; choose a larger vocabulary or other data", what, largest,
         vocabulary);
}

}  // namespace chimera

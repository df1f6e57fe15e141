#include "model/tensor_parallel.h"

#include <ATen/ATen.h>

#include "model/autograd.h"
#include "model/layers.h"

namespace chimera {
namespace {

/// [b, L / T, H] -> [b, L, H]
at::Tensor all_tokens(const at::Tensor& own, TensorGroup& group) {
  // Ranks have the tokens of each sample in order, so the tensors join in dimension 1.
  return at::cat(group.exchange(own.contiguous()), 1);
}

at::Tensor own_tokens(const at::Tensor& all, const TensorGroup& group) {
  const TensorRange tokens = group.place().share_of(all.size(1));
  return all.narrow(1, tokens.first, tokens.count);
}

/// Adds the ranks' [b, L, H] -> [b, L / T, H]
at::Tensor sum_of_own_tokens(const at::Tensor& part, TensorGroup& group) {
  if (at::Tensor own = group.sum_own_share(part); own.defined()) return own;
  const std::vector<at::Tensor> parts = group.exchange(part.contiguous());
  // Always in the order of ranks, so that the bits do not depend on which rank adds.
  at::Tensor sum = at::add(own_tokens(parts[0], group), own_tokens(parts[1], group));
  for (std::size_t rank = 2; rank < parts.size(); ++rank) sum.add_(own_tokens(parts[rank], group));
  return sum;
}

/// What the ranks do with their tensors in a forward or backward.
enum class Collective : std::uint8_t {
  None,
  Sum,            // [b, L, H] -> [b, L, H], in place
  SumOwnTokens,   // [b, L, H] -> [b, L / T, H]
  GatherTokens,   // [b, L / T, H] -> [b, L, H]
  TakeOwnTokens,  // [b, L, H] -> [b, L / T, H]; the tensors are equal on all ranks
};

at::Tensor result_of(Collective collective, const at::Tensor& own, TensorGroup& group) {
  switch (collective) {
    case Collective::None: break;
    case Collective::Sum: {
      // A result of a layer or a sum of gradients, which nobody else reads, so it may be overwritten.
      const at::Tensor sum = own.contiguous();
      group.sum(sum);
      return sum;
    }
    case Collective::SumOwnTokens: return sum_of_own_tokens(own, group);
    case Collective::GatherTokens: return all_tokens(own, group);
    case Collective::TakeOwnTokens: return own_tokens(own, group);
  }
  return own;
}

struct CollectiveFunction : torch::autograd::Function<CollectiveFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& own, TensorGroup* group, Collective forwards,
                            Collective backwards) {
    hold(context, "group", group);
    hold(context, "backwards", backwards);
    // The sum is written to the argument itself, which autograd must be told.
    if (forwards == Collective::Sum) context->mark_dirty({own});
    return result_of(forwards, own, *group);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor gradient =
        result_of(held<Collective>(context, "backwards"), output_gradients[0], *held<TensorGroup*>(context, "group"));
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

/// Adds the gradient of the bias through the queue, as linear() does.
struct BiasFunction : torch::autograd::Function<BiasFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& bias) {
    save_leaves(context, {bias});
    return input + bias;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor& gradient = output_gradients[0];
    const auto queue = saved_queue(context);
    queue->submit([bias = saved_leaves(context)[0], gradient, queue = queue.get()] {
      add_weight_gradient({.weight = {}, .bias = bias}, {}, gradient.flatten(0, -2), /*factor=*/{}, queue);
    });
    return {gradient, at::Tensor()};
  }
};

}  // namespace

at::Tensor part_view(const at::Tensor& whole, const TensorCut& cut, const TensorPlace& place) {
  const std::int64_t block = whole.size(cut.dimension) / cut.blocks;
  // With blocks = 3 (queries, keys, values side by side), each rank gets its share of each of the three.
  const TensorRange range = place.share_of(block, cut);
  return whole.unflatten(cut.dimension, {cut.blocks, block}).narrow(cut.dimension + 1, range.first, range.count);
}

at::Tensor local_part(const at::Tensor& whole, const TensorCut& cut, const TensorPlace& place) {
  const at::Tensor part = part_view(whole, cut, place).flatten(cut.dimension, cut.dimension + 1);
  return part.clone(at::MemoryFormat::Contiguous);
}

at::Tensor join_parts(const at::Tensor& part, const TensorCut& cut, std::int64_t size, TensorGroup& group) {
  TensorPlace first = group.place();
  first.rank = 0;
  // The last ranks may have fewer elements. constant_pad_nd() takes pairs (before, after) from the last dimension
  // backward, so the last entry is what follows in the cut dimension.
  std::vector<std::int64_t> padding(static_cast<std::size_t>(2 * (part.dim() - cut.dimension)));
  padding.back() = first.share_of(size, cut).count - part.size(cut.dimension);
  const at::Tensor padded = padding.back() == 0 ? part : at::constant_pad_nd(part, padding);
  // Only the last ranks have padding, so all of it ends up behind `size`.
  return at::cat(group.exchange(padded.contiguous()), cut.dimension).narrow(cut.dimension, 0, size);
}

at::Tensor gather_whole(const at::Tensor& part, const TensorCut& cut, const std::vector<std::int64_t>& shape,
                        TensorGroup& group) {
  const std::int64_t block = shape[static_cast<std::size_t>(cut.dimension)] / cut.blocks;
  const at::Tensor blocks = part.detach().unflatten(cut.dimension, {cut.blocks, -1});
  // With the blocks as a dimension of their own, the parts of each block join side by side.
  const TensorCut of_block{.dimension = cut.dimension + 1, .of_heads = cut.of_heads};
  return join_parts(blocks, of_block, block, group).flatten(cut.dimension, cut.dimension + 1);
}

at::Tensor replicate_input(const at::Tensor& whole, TensorGroup* group) {
  if (group == nullptr) return whole;
  // Each rank has the gradient through its own columns of the matrix; the gradient of the input is their sum.
  return CollectiveFunction::apply(whole, group, Collective::None, Collective::Sum);
}

at::Tensor gather_tokens(const at::Tensor& own, TensorGroup* group) {
  if (group == nullptr || !group->cuts_tokens()) return own;
  return CollectiveFunction::apply(own, group, Collective::GatherTokens, Collective::TakeOwnTokens);
}

at::Tensor enter_split(const at::Tensor& own, TensorGroup* group) {
  if (group == nullptr || !group->cuts_tokens()) return replicate_input(own, group);
  return CollectiveFunction::apply(own, group, Collective::GatherTokens, Collective::SumOwnTokens);
}

at::Tensor leave_split(const at::Tensor& part, TensorGroup* group) {
  if (group == nullptr) return part;
  if (!group->cuts_tokens()) return CollectiveFunction::apply(part, group, Collective::Sum, Collective::None);
  return CollectiveFunction::apply(part, group, Collective::SumOwnTokens, Collective::GatherTokens);
}

at::Tensor row_linear(const LinearInput& input, const Linear& layer, TensorGroup* group) {
  if (group == nullptr) return linear(input, layer);
  const at::Tensor sum =
      // Without the bias: the sum over T ranks would add it T times.
      leave_split(linear(input, {.weight = layer.weight, .bias = {}, .layout = layer.layout}), group);
  return layer.bias.defined() ? BiasFunction::apply(sum, layer.bias) : sum;
}

at::Tensor whole_scores(const at::Tensor& scores, const VocabularyPart& part) {
  if (part.group == nullptr) return scores;
  return join_parts(scores, {scores.dim() - 1}, part.all, *part.group);
}

at::Tensor token_embedding(const at::Tensor& table, const at::Tensor& tokens, const VocabularyPart& part) {
  if (part.group == nullptr) return token_embedding(table, tokens);
  require_below(tokens, part.all, "token");
  const at::Tensor rows = tokens - part.first;
  const at::Tensor elsewhere = rows.lt(0).logical_or_(rows.ge(table.size(0)));
  // Tokens of other ranks are zeros here, and their gradient is zero.
  const at::Tensor own = token_embedding(table, rows.masked_fill(elsewhere, 0));
  return leave_split(own.masked_fill(elsewhere.unsqueeze(-1), 0), part.group);
}

}  // namespace chimera

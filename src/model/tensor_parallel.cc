#include "model/tensor_parallel.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "model/embedding.h"
#include "model/layers.h"

namespace chimera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HeldGroup : torch::CustomClassHolder {
  explicit HeldGroup(TensorGroup* ranks) : group(ranks) {}
  TensorGroup* group;
};

struct EnterFunction : torch::autograd::Function<EnterFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& whole, TensorGroup* group) {
    context->saved_data["group"] = at::IValue::make_capsule(c10::make_intrusive<HeldGroup>(group));
    return whole;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto held = c10::static_intrusive_pointer_cast<HeldGroup>(context->saved_data["group"].toCapsule());
    // A sum of products that nobody else reads, so it may be overwritten.
    const at::Tensor gradient = output_gradients[0].contiguous();
    held->group->sum(gradient);
    return {gradient, at::Tensor()};
  }
};

struct LeaveFunction : torch::autograd::Function<LeaveFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& part, TensorGroup* group) {
    context->mark_dirty({part});
    group->sum(part);
    return part;
  }

  static variable_list backward(AutogradContext* /*context*/, const variable_list& output_gradients) {
    return {output_gradients[0], at::Tensor()};
  }
};

/// Adds the gradient of the bias through the queue, as linear() does.
struct BiasFunction : torch::autograd::Function<BiasFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& bias) {
    save_leaves(context, {bias});
    save_queue(context);
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
  const TensorRange range = place.share_of(block);
  return whole.unflatten(cut.dimension, {cut.blocks, block}).narrow(cut.dimension + 1, range.first, range.count);
}

at::Tensor part_of(const at::Tensor& whole, const TensorCut& cut, const TensorPlace& place) {
  const at::Tensor part = part_view(whole, cut, place).flatten(cut.dimension, cut.dimension + 1);
  return part.clone(at::MemoryFormat::Contiguous);
}

at::Tensor whole_of(const at::Tensor& part, const TensorCut& cut, const std::vector<std::int64_t>& shape,
                    TensorGroup& group) {
  at::Tensor whole = at::zeros(shape, part.options());
  at::Tensor own = part_view(whole, cut, group.place());
  own.copy_(part.detach().view(own.sizes()));
  group.sum(whole);
  return whole;
}

at::Tensor enter_split(const at::Tensor& whole, TensorGroup* group) {
  return group == nullptr ? whole : EnterFunction::apply(whole, group);
}

at::Tensor leave_split(const at::Tensor& part, TensorGroup* group) {
  return group == nullptr ? part : LeaveFunction::apply(part, group);
}

at::Tensor row_linear(const at::Tensor& input, const Linear& layer, TensorGroup* group) {
  if (group == nullptr) return linear(input, layer);
  const at::Tensor sum =
      leave_split(linear(input, {.weight = layer.weight, .bias = {}, .layout = layer.layout}), group);
  return layer.bias.defined() ? BiasFunction::apply(sum, layer.bias) : sum;
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

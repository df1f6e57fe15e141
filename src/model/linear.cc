#include "model/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <algorithm>
#include <optional>
#include <utility>

namespace chimera {
namespace {

// Per thread, because ranks may be threads of one process, and the forward of a pair runs on a helper thread.
thread_local WeightGradients::Pointer current_queue;

/// [..., n] -> [rows, n]
at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// Computes sum += left right. If the factors are narrower than the sum, the CPU rounds the product to their type. GPUs
/// do not: their kernel accepts a float32 sum (_addmm_dtype_out_cuda in ATen/native/cuda/Blas.cpp).
void add_product(at::Tensor sum, const at::Tensor& left, const at::Tensor& right) {
  if (sum.scalar_type() == left.scalar_type()) {
    sum.addmm_(left, right);
  } else if (!sum.is_cpu()) {
    for_each_fast_part(sum.size(0), [&](std::int64_t first, std::int64_t count) {
      // The kernel reads `part` as the addend and writes the result there: part = part + left right.
      at::Tensor part = sum.narrow(0, first, count);
      at::addmm_out(part, part, left.narrow(0, first, count), right, sum.scalar_type());
    });
  } else {
    sum.add_(left.mm(right));
  }
}

/// Autograd computes only the input gradient; the weight gradient goes through the queue.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, WeightLayout layout, const LinearInput& kept) {
    context->save_for_backward(kept.remaking ? kept.from : variable_list{input});
    if (kept.remaking) {
      kept.remaking->add_reader();
      context->saved_data["remaking"] = at::IValue::make_capsule(kept.remaking);
    }
    save_leaves(context, {weight, bias.value_or(at::Tensor())});
    context->saved_data["layout"] = static_cast<std::int64_t>(layout);
    return at::linear(input, out_in({weight, {}, layout}), bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto remaking = context->saved_data.find("remaking");
    const variable_list kept = context->get_saved_variables();
    const at::Tensor saved =
        remaking == context->saved_data.end()
            ? kept[0]
            : c10::static_intrusive_pointer_cast<Remaking>(remaking->second.toCapsule())->read(kept);
    const std::vector<at::Tensor> leaves = saved_leaves(context);
    const auto layout = static_cast<WeightLayout>(context->saved_data["layout"].toInt());
    // The parameters themselves, and not copies that save_for_backward() may give: their grad() is the place to add to.
    const Linear layer{leaves[0], leaves[1], layout};
    const at::Tensor& output_gradient = output_gradients[0];
    at::Tensor input_gradient;
    // The input of a first stage needs no gradient.
    if (context->needs_input_grad(0)) input_gradient = output_gradient.matmul(out_in(layer));
    // Detached: a graph would keep the stage's input and its gradient until W.
    const auto queue = saved_queue(context);
    queue->submit([layer, input = rows_of(saved.detach()), rows = rows_of(output_gradient), queue = queue.get()] {
      add_weight_gradient(layer, input, rows, /*factor=*/{}, queue);
    });
    return {input_gradient, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor Remaking::read(const std::vector<at::Tensor>& from) {
  const at::NoGradGuard no_graph;
  if (!made_.defined()) made_ = make_(from);
  at::Tensor made = made_;
  if (++reads_ % readers_ == 0) made_.reset();
  return made;
}

void WeightGradients::submit(std::function<void()> add) {
  if (deferred_)
    kept_.push_back(std::move(add));
  else
    add();
}

void WeightGradients::run() {
  for (auto& add : std::exchange(kept_, {})) {
    add();
    add = nullptr;  // frees its tensors before the next one runs
  }
  add_terms();
}

void WeightGradients::add(const at::Tensor& sum, const at::Tensor& term) {
  const at::NoGradGuard no_graph;
  if (sum.is_cpu()) {
    sum.add_(term);
    return;
  }
  // Kernels for many tensors must not write to one tensor twice.
  const auto is_sum = [&](const at::Tensor& other) { return other.data_ptr() == sum.data_ptr(); };
  // The list then restarts, and the order of additions to each sum stays the order of the calls.
  if (std::ranges::any_of(sums_, is_sum)) add_terms();
  if (sums_.empty() && !deferred_) {
    auto& engine = torch::autograd::Engine::get_default_engine();
    // Runs at the end of this backward, when no more terms can come.
    engine.queue_callback([self = Pointer::reclaim_copy(this)] { self->add_terms(); });
  }
  sums_.push_back(sum);
  terms_.push_back(term);
}

void WeightGradients::add_terms() {
  if (sums_.empty()) return;
  const at::NoGradGuard no_graph;
  const std::vector<at::Tensor> sums = std::exchange(sums_, {});
  std::vector<at::Tensor> terms = std::exchange(terms_, {});
  // _foreach_add_ adds tensors of one type in one kernel; _foreach_copy_ converts many in one kernel.
  std::vector<at::Tensor> narrow;
  std::vector<at::Tensor> widened;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (terms[i].scalar_type() == sums[i].scalar_type()) continue;
    narrow.push_back(terms[i]);
    // Widened before they are added: _foreach_add_ takes one type.
    terms[i] = at::empty_like(sums[i]);
    widened.push_back(terms[i]);
  }
  if (!narrow.empty()) at::_foreach_copy_(widened, narrow);
  // Few kernels for all biases and norms of a stage; each alone would cost more to launch than to compute.
  at::_foreach_add_(sums, terms);
}

const WeightGradients::Pointer& WeightGradients::current() {
  // Code outside of an executor, such as evaluation and tests, runs whole backwards, which this queue does.
  if (!current_queue) current_queue = c10::make_intrusive<WeightGradients>();
  return current_queue;
}

WeightGradients::Scope::Scope(Pointer queue) : ScopedValue(current_queue, std::move(queue)) {}

void add_to_gradient(const at::Tensor& parameter, const at::Tensor& term, WeightGradients* queue) {
  const at::NoGradGuard no_graph;
  const at::Tensor sum = gradient_of(parameter);
  if (queue != nullptr)
    queue->add(sum, term);
  else
    sum.add_(term);
}

at::Tensor out_in(const Linear& layer) { return layer.layout == WeightLayout::OutIn ? layer.weight : layer.weight.t(); }

std::optional<at::Tensor> bias_of(const Linear& layer) {
  return layer.bias.defined() ? std::optional(layer.bias) : std::nullopt;
}

at::Tensor linear(const LinearInput& input, const Linear& layer) {
  return LinearFunction::apply(input.value, layer.weight, bias_of(layer), layer.layout, input);
}

at::Tensor gradient_of(at::Tensor parameter) {
  if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
  return parameter.grad();
}

void add_weight_gradient(const Linear& layer, const at::Tensor& input, const at::Tensor& output_gradient,
                         const at::Tensor& factor, WeightGradients* queue) {
  const at::NoGradGuard no_graph;
  if (layer.weight.defined() && layer.weight.requires_grad()) {
    const at::Tensor gradient = gradient_of(layer.weight);
    // In a large head, the input is smaller than the output's gradient.
    const at::Tensor scaled_input = factor.defined() ? input * factor : input;
    if (layer.layout == WeightLayout::OutIn)
      add_product(gradient, output_gradient.t(), scaled_input);
    else
      add_product(gradient, scaled_input.t(), output_gradient);
  }
  if (layer.bias.defined() && layer.bias.requires_grad()) {
    // Summed in the type of the gradient: a sum over tokens in bfloat16 would lose most terms. A bias term is small and
    // goes through the queue's list; a weight gradient is a product that adds to its sum itself.
    at::Tensor sum = output_gradient.sum(0, /*keepdim=*/false, gradient_of(layer.bias).scalar_type());
    if (factor.defined()) sum.mul_(factor);
    add_to_gradient(layer.bias, sum, queue);
  }
}

}  // namespace chimera

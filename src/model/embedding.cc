#include "model/embedding.h"

#include <ATen/ATen.h>

#include "core/reject.h"
#include "model/autograd.h"
#include "model/layers.h"
#include "model/linear.h"

namespace chimera {
namespace {

/// Computes sum[indices[i]] += rows[i] in order. On a GPU, index_add_ adds in any order; index_put_ sorts.
void add_rows(at::Tensor sum, const at::Tensor& indices, const at::Tensor& rows) {
  const at::NoGradGuard no_graph;
  if (sum.is_cpu()) {
    sum.index_add_(0, indices, rows);
  } else {
    sum.index_put_({indices}, rows, /*accumulate=*/true);
  }
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table, const at::Tensor& tokens) {
    // The table is a parameter, so it is saved with save_leaves(). Autograd itself gets no gradient for it (backward
    // returns an undefined tensor): the queue adds to table.grad() now or in op W.
    context->save_for_backward({tokens});
    save_leaves(context, {table});
    hold(context, "queue", WeightGradients::current());
    return at::embedding(table, tokens);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor tokens = context->get_saved_variables()[0];
    held<WeightGradients::Pointer>(context, "queue")
        ->submit([table = saved_leaves(context)[0], tokens, gradient = output_gradients[0]] {
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
    hold(context, "queue", WeightGradients::current());
    return embedded + table.narrow(0, first, embedded.size(1));
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const at::Tensor& gradient = output_gradients[0];
    const std::int64_t first = context->saved_data["first"].toInt();
    held<WeightGradients::Pointer>(context, "queue")->submit([table = saved_leaves(context)[0], gradient, first] {
      const at::NoGradGuard no_graph;
      // Only the rows of these positions: in a slice, the positions of other slices get nothing.
      gradient_of(table).narrow(0, first, gradient.size(1)).add_(gradient.sum(0));
    });
    return {gradient, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor token_embedding(const at::Tensor& table, const at::Tensor& tokens) {
  require_below(tokens, table.size(0), "token");
  return EmbeddingFunction::apply(table, tokens);
}

at::Tensor add_positions(const at::Tensor& embedded, const at::Tensor& table, std::int64_t first) {
  const std::int64_t length = first + embedded.size(1);
  if (length > table.size(0)) {
    reject("a sequence of {} tokens is longer than the model's {} positions", length, table.size(0));
  }
  return PositionFunction::apply(embedded, table, first);
}

}  // namespace chimera

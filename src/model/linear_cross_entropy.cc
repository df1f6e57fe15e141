#include "model/linear_cross_entropy.h"

#include <ATen/ATen.h>

#include <limits>
#include <optional>
#include <utility>

#include "core/invariant.h"
#include "model/autograd.h"
#include "model/layers.h"
#include "model_config/footprint.h"

// solve() walks over chunks of tokens: logits, loss, gradient of the logits, and its product with the matrix (the
// gradient of the hidden states). Only the last chunk's logit gradient survives the forward; add_weight_gradients()
// computes the others again. With tensor parallelism, each rank has some rows of the matrix, and shared_loss_sum() adds
// what the softmax needs over the ranks.

namespace chimera {
namespace {

/// What forward and weight gradient both need. It lives from the forward to op W.
struct Problem {
  at::Tensor hidden;   // [n, H], detached
  at::Tensor targets;  // [n]
  Linear head;
  double scale = 1;
  TokenChunks chunks;
  VocabularyPart part;
  at::Tensor log_sums = {};  // [n] with a group: logarithm of the sum of exponentials of all ranks' logits
};

/// Views of the tokens of one chunk, c tokens.
struct Chunk {
  Chunk(const Problem& problem, std::int64_t index)
      : hidden(rows(problem, index, problem.hidden)), targets(rows(problem, index, problem.targets)) {
    if (problem.part.group == nullptr) return;
    // A target outside of this rank's rows, or kIgnored, becomes negative or too large here.
    const at::Tensor rows_here = targets - problem.part.first;
    is_here = rows_here.ge(0).logical_and_(rows_here.lt(out_in(problem.head).size(0)));
    log_sums = rows(problem, index, problem.log_sums);
  }

  static at::Tensor rows(const Problem& problem, std::int64_t index, const at::Tensor& all) {
    return all.narrow(0, problem.chunks.first_token(index), problem.chunks.size_of(index));
  }

  at::Tensor hidden;    // [c, H]
  at::Tensor targets;   // [c]
  at::Tensor is_here;   // [c] with a group: whether this rank has the target
  at::Tensor log_sums;  // [c] with a group
};

/// Length of a row of logits on a GPU: rows begin at multiples of 128 bytes (see for_each_fast_part()).
std::int64_t padded(std::int64_t vocabulary) {
  constexpr std::int64_t kMultiple = 64;
  return (vocabulary + kMultiple - 1) / kMultiple * kMultiple;
}

/// Writes the logits [c, `count`] of the vocabulary's tokens from `first` on. A product of narrow factors can be wide,
/// without a conversion.
void write_logits(at::Tensor logits, const Chunk& chunk, const Linear& head, std::int64_t first, std::int64_t count) {
  const at::Tensor matrix = out_in(head).narrow(0, first, count).t();
  // BERT's head, whose product stays narrow. Without a bias, a narrow product is written to a wide result with beta =
  // 0, which does not read `logits`.
  if (head.bias.defined())
    at::addmm_out(logits, head.bias.narrow(0, first, count), chunk.hidden, matrix);
  else if (logits.scalar_type() == chunk.hidden.scalar_type())
    at::mm_out(logits, chunk.hidden, matrix);
  else
    at::addmm_out(logits, logits, chunk.hidden, matrix, logits.scalar_type(), /*beta=*/0);
}

/// [c, V of this rank], on a GPU [c, padded(V)] with minus infinity behind the vocabulary; in at least float32.
at::Tensor own_logits(const Chunk& chunk, const Linear& head) {
  const at::ScalarType narrow = chunk.hidden.scalar_type();
  const at::ScalarType wide = at::promote_types(narrow, at::kFloat);
  if (chunk.hidden.is_cpu()) return at::linear(chunk.hidden, out_in(head), bias_of(head)).to(wide);
  const std::int64_t vocabulary = out_in(head).size(0);
  const auto options = chunk.hidden.options().dtype(head.bias.defined() ? narrow : wide);
  const at::Tensor rows = at::empty({chunk.hidden.size(0), padded(vocabulary)}, options);
  for_each_fast_part(vocabulary, [&](std::int64_t first, std::int64_t count) {
    write_logits(rows.narrow(1, first, count), chunk, head, first, count);
  });
  // Padding must not count in the softmax. exp(-infinity) is 0, also in the gradient.
  rows.narrow(1, vocabulary, rows.size(1) - vocabulary).fill_(-std::numeric_limits<double>::infinity());
  return rows.to(wide);
}

/// Logarithms of probabilities in the shape of own_logits(), without a group.
at::Tensor log_probabilities(const Chunk& chunk, const Linear& head) {
  return at::log_softmax(own_logits(chunk, head), 1);
}

/// Writes the product of a logit gradient [c, V] and the matrix.
void write_hidden_gradient(at::Tensor rows, const at::Tensor& logit_gradient, const Linear& head) {
  if (rows.is_cpu()) {
    at::mm_out(rows, logit_gradient, out_in(head));
    return;
  }
  for_each_fast_part(logit_gradient.size(1), [&](std::int64_t first, std::int64_t count) {
    const at::Tensor part = logit_gradient.narrow(1, first, count);
    const at::Tensor matrix = out_in(head).narrow(0, first, count);
    // The columns of the gradient are the rows of the matrix: the first part writes the sum, the second adds to it.
    if (first == 0)
      at::mm_out(rows, part, matrix);
    else
      at::addmm_out(rows, rows, part, matrix);
  });
}

/// Targets as indices of this rank's logits [c, 1]; ignored targets and those of other ranks are 0.
at::Tensor indices(const Problem& problem, const Chunk& chunk) {
  if (!chunk.is_here.defined()) return chunk.targets.clamp_min(0).unsqueeze(1);
  return (chunk.targets - problem.part.first).masked_fill_(chunk.is_here.logical_not(), 0).unsqueeze(1);
}

/// Unscaled loss of the chunk, [].
at::Tensor loss_sum(const Problem& problem, const Chunk& chunk, const at::Tensor& log_probabilities) {
  // The loss of a token is minus the logarithm of its target's probability.
  const at::Tensor losses = log_probabilities.gather(1, indices(problem, chunk)).squeeze(1);
  return -losses.masked_fill(chunk.targets == kIgnored, 0).sum();
}

/// Adds over the ranks what a chunk's loss needs of all logits, [c, V of this rank]: sets the chunk's log_sums, turns
/// the logits into logarithms of probabilities, and returns the unscaled loss, [].
at::Tensor shared_loss_sum(const Problem& problem, const Chunk& chunk, at::Tensor logits) {
  TensorGroup& group = *problem.part.group;
  const std::int64_t ranks = group.place().ranks;
  // A row for each rank's logarithm, as a sum of exponentials alone could overflow; the last row is the target's logit.
  const at::Tensor numbers = at::zeros({ranks + 1, logits.size(0)}, logits.options());
  // Each rank fills its own row and adds zeros to the others, so that one sum is an all-gather. The target's logit is
  // on one rank only, so its sum is a broadcast.
  numbers[group.place().rank].copy_(logits.logsumexp(1));
  numbers[ranks].copy_(
      logits.gather(1, indices(problem, chunk)).squeeze(1).masked_fill_(chunk.is_here.logical_not(), 0));
  group.sum(numbers);
  at::Tensor log_sums = chunk.log_sums;
  // A view of Problem::log_sums, so that the weight gradient has the sums and need not exchange anything.
  log_sums.copy_(numbers.narrow(0, 0, ranks).logsumexp(0));
  logits.sub_(log_sums.unsqueeze(1));
  return (log_sums - numbers[ranks]).masked_fill_(chunk.targets == kIgnored, 0).sum();
}

/// Gradient of the scaled loss in the chunk's logits, [c, V] in the type of hidden states; a view of padded rows on a
/// GPU. Reuses the argument's memory.
at::Tensor logit_gradient(const Problem& problem, const Chunk& chunk, at::Tensor log_probabilities) {
  // The gradient of the cross entropy in its logits is softmax(logits) minus 1 at the target.
  at::Tensor gradient = std::move(log_probabilities).exp_();
  const at::Tensor target_indices = indices(problem, chunk);
  // softmax - one-hot; ignored targets subtract at 0 and get the scale 0 below.
  const at::Tensor one_hot = chunk.is_here.defined() ? chunk.is_here.to(gradient.scalar_type()).neg_().unsqueeze(1)
                                                     : at::full_like(target_indices, -1, gradient.options());
  gradient.scatter_add_(1, target_indices, one_hot);
  const at::Tensor scales = (chunk.targets != kIgnored).to(gradient.scalar_type()).mul_(problem.scale);
  if (gradient.is_cpu()) return gradient.mul_(scales.unsqueeze(1)).to(chunk.hidden.scalar_type());
  at::Tensor result = at::empty(gradient.sizes(), chunk.hidden.options());
  at::mul_out(result, gradient, scales.unsqueeze(1));  // with the conversion in the same kernel
  return result.narrow(1, 0, out_in(problem.head).size(0));
}

struct Result {
  at::Tensor loss;                 // []
  at::Tensor hidden_gradient;      // [n, H]; undefined without gradients
  at::Tensor last_logit_gradient;  // [c, V] of the last chunk; undefined without gradients
};

Result solve(const Problem& problem, bool with_gradients) {
  Result result;
  const at::ScalarType wide = at::promote_types(problem.hidden.scalar_type(), at::kFloat);
  result.loss = at::zeros({}, problem.hidden.options().dtype(wide));
  if (with_gradients) result.hidden_gradient = at::empty_like(problem.hidden);
  for (std::int64_t i = 0; i < problem.chunks.count(); ++i) {
    // Frees the last chunk before the next one is computed: two chunks at a time would double the peak.
    result.last_logit_gradient.reset();
    const Chunk chunk(problem, i);
    // With a group, logarithms of probabilities exist only after shared_loss_sum(), which turns the logits into them.
    at::Tensor logs =
        problem.part.group == nullptr ? log_probabilities(chunk, problem.head) : own_logits(chunk, problem.head);
    result.loss +=
        problem.part.group == nullptr ? loss_sum(problem, chunk, logs) : shared_loss_sum(problem, chunk, logs);
    if (!with_gradients) continue;
    result.last_logit_gradient = logit_gradient(problem, chunk, std::exchange(logs, {}));
    write_hidden_gradient(Chunk::rows(problem, i, result.hidden_gradient), result.last_logit_gradient, problem.head);
  }
  result.loss *= problem.scale;
  return result;
}

/// The last chunk comes first, which frees memory for the others' logits.
void add_weight_gradients(const Problem& problem, at::Tensor last_logit_gradient, const at::Tensor& factor) {
  const at::NoGradGuard no_graph;
  const auto add = [&](const Chunk& chunk, const at::Tensor& logit_gradient) {
    add_weight_gradient(problem.head, chunk.hidden, logit_gradient, factor);
  };
  const std::int64_t last = problem.chunks.count() - 1;
  // There is no chunk if no token has a loss.
  if (last >= 0) add(Chunk(problem, last), std::exchange(last_logit_gradient, {}));
  for (std::int64_t i = 0; i < last; ++i) {
    const Chunk chunk(problem, i);
    at::Tensor logs = problem.part.group == nullptr ? log_probabilities(chunk, problem.head)
                                                    : own_logits(chunk, problem.head).sub_(chunk.log_sums.unsqueeze(1));
    add(chunk, logit_gradient(problem, chunk, std::move(logs)));
  }
}

struct Kept {
  Problem problem;
  Result result;
  WeightGradients::Pointer queue;
};

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& /*weight*/,
                            const std::optional<at::Tensor>& /*bias*/, Problem problem) {
    // The gradients are computed now, for a gradient of 1 of the loss. Backward multiplies them by the actual gradient,
    // because everything is linear in it.
    Kept kept;
    problem.hidden = hidden.detach();  // a graph would keep all earlier tensors until W
    kept.result = solve(problem, /*with_gradients=*/true);
    kept.problem = std::move(problem);
    // The queue of this forward: backward may run when another micro-batch is current.
    kept.queue = WeightGradients::current();
    at::Tensor loss = std::exchange(kept.result.loss, {});
    hold(context, "kept", std::move(kept));
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    Kept& kept = held<Kept>(context, "kept");
    Result result = std::exchange(kept.result, {});
    require_invariant(result.hidden_gradient.defined(), "the loss of a model ran backward twice");
    const at::Tensor& factor = output_gradients[0];
    auto add = [problem = std::exchange(kept.problem, {}), last = std::move(result.last_logit_gradient),
                factor]() mutable { add_weight_gradients(problem, std::exchange(last, {}), factor); };
    kept.queue->submit(std::move(add));
    // In place, because nothing else reads it: the result was taken out of `kept`.
    return {result.hidden_gradient.mul_(factor), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const Linear& head, const at::Tensor& targets, double scale,
                                std::optional<std::int64_t> logits_of_chunk, const VocabularyPart& part) {
  const std::int64_t vocabulary = part.group == nullptr ? out_in(head).size(0) : part.all;
  require_below(targets, vocabulary, "target");
  const std::int64_t most = logits_of_chunk.value_or(hidden.is_cpu() ? kLogitsOfChunk : kLogitsOfGpuChunk);
  // All ranks cut equal chunks, although the last may have fewer rows.
  const std::int64_t rows =
      part.group == nullptr ? vocabulary : TensorPlace{0, part.group->place().ranks}.share_of(vocabulary).count;
  Problem problem{hidden, targets, head, scale, chunks_of(hidden.size(0), rows, most), part};
  if (part.group != nullptr) {
    problem.log_sums =
        at::empty({hidden.size(0)}, hidden.options().dtype(at::promote_types(hidden.scalar_type(), at::kFloat)));
  }
  // Validation, and the first forward of a recomputed stage.
  if (!at::GradMode::is_enabled()) return solve(problem, /*with_gradients=*/false).loss;
  // Weight and bias are arguments, although their gradients do not go through autograd, so that the loss requires a
  // gradient even if the hidden states do not.
  return LinearCrossEntropyFunction::apply(hidden, head.weight, bias_of(head), std::move(problem));
}

}  // namespace chimera

#include "runtime/op_runner.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <future>
#include <utility>

#include "core/fault_point.h"
#include "core/invariant.h"

// A forward has three parts, because the forward of a pair runs on another thread: begin_forward() takes the input and
// loads the micro-batch, run() computes, and end_forward() stores results. A backward takes the activation that
// end_forward() has put, runs autograd from the output, and passes the gradient of the input on. In op I, the weight
// gradients stay in a queue (WeightGradients), which op W runs.

namespace chimera {
namespace {

OpKey key_of_first_slice(const Op& op) {
  Op first = forward_of(op);
  first.slice = 0;
  return key_of(first);
}

StageId neighbor(const Op& op, std::int64_t distance) { return StageId(op.stage.value() + distance); }

}  // namespace

OpRunner::OpRunner(const WorkerContext& worker, Messages& messages, Activations& activations, GradientSums& sums)
    : worker_(worker),
      messages_(messages),
      activations_(activations),
      sums_(sums),
      times_(worker.shape.stages(), worker.num_slices()),
      recorded_(worker) {}

OpRunner::Timing OpRunner::start_timing() const {
  Timing timing{Stopwatch(worker_.shape.counts_cpu_time)};
  if (times_ops_ && !device_.is_cpu()) timing.begin.emplace(device_);
  return timing;
}

void OpRunner::end_timing(const Timing& timing, StageId stage, std::size_t kind) {
  stretch_op(timing.watch.elapsed().wall_seconds);
  if (timing.begin)
    work_.note(*timing.begin, device_, [this, stage, kind](double seconds) { times_.add(stage, kind, {seconds, 0}); });
  else if (times_ops_)
    times_.add(stage, kind, timing.watch.elapsed());
}

void OpRunner::compute(const Op& op, const LoadMicroBatch& load) {
  const Timing timing = start_timing();
  const bool adds_to_block = gives_weight_gradient(op.kind);
  // Canonical sums need to know whose gradients are added. I adds none (input_gradient() hides them).
  if (adds_to_block) sums_.open_block(op);
  switch (op.kind) {
    case OpKind::Forward: {
      Forward forward = begin_forward(op, load);
      if (!repeat(forward)) run(forward);
      end_forward(std::move(forward));
      break;
    }
    case OpKind::Backward: static_cast<void>(propagate(op, /*defers_weight_gradients=*/false)); break;
    case OpKind::BackwardInput: input_gradient(op); break;
    case OpKind::BackwardWeight: weight_gradient(op); break;
  }
  if (adds_to_block) sums_.close_block(op);
  end_timing(timing, op.stage, static_cast<std::size_t>(op.kind));
}

void OpRunner::compute_pair(const Op& first, const Op& second, const LoadMicroBatch& load,
                            const std::function<void()>& on_forward) {
  // Only the computation runs on the helper. Messages and activations are not thread-safe, so this thread reads the
  // input before and stores the output afterwards.
  Forward forward = begin_forward(first, load);
  Duration duration;
  if (!helper_) helper_.emplace();
  std::future<void> end = helper_->begin([&] {
    const Stopwatch stopwatch(worker_.shape.counts_cpu_time);
    run(forward);
    duration = stopwatch.elapsed();
  });
  try {
    compute(second, load);
  } catch (...) {
    end.wait();  // The helper uses `forward`
    throw;
  }
  // From here on, an error belongs to the forward.
  on_forward();
  end.get();
  end_forward(std::move(forward));
  times_.add(first, duration);
}

OpRunner::Forward OpRunner::begin_forward(const Op& op, const LoadMicroBatch& load) {
  Forward forward{.op = op, .gets_nan = fault_point("forward")};
  at::Tensor& input = forward.activation.input;
  if (!worker_.is_first(op)) {
    Op before = op;
    before.stage = neighbor(op, -1);
    // A leaf of this worker's own graph, as another worker may share the tensor.
    input = messages_.take(before).detach();
    // The gradient of this leaf is what the backward sends to the stage before.
    if (trains_) input.requires_grad_(true);
  }
  forward.keeps_graph = trains_ && !activations_.is_recomputed(op.stage);
  forward.activation.saved = activations_.saved_tensors_of(op);
  forward.batch = load_slice(op, load);
  return forward;
}

void OpRunner::run(Forward& forward) const {
  const at::AutoGradMode mode(forward.keeps_graph);
  Activation& activation = forward.activation;
  // One queue per op: its layers save it in their nodes, and only this op's backward defers or runs it.
  if (forward.keeps_graph) activation.weight_gradients = c10::make_intrusive<WeightGradients>();
  const WeightGradients::Scope scope(activation.weight_gradients);
  const SavedTensors::Scope saved(activation.saved.get());
  activation.output = worker_.stage(forward.op).forward(activation.input, forward.batch);
  // The graph holds the tensors that backward reads; the others are freed now.
  forward.batch = {};
}

/// Returns whether a graph has computed the forward.
bool OpRunner::repeat(Forward& forward) {
  if (!forward.keeps_graph) return false;
  Activation& activation = forward.activation;
  activation.recorded = recorded_.forward(forward.op, activation.input, forward.batch);
  if (activation.recorded == nullptr) return false;
  // The slot has a copy of the input, so the message can be freed.
  activation.input.reset();
  activation.output = activation.recorded->output;
  return true;
}

void OpRunner::end_forward(Forward forward) {
  const Op& op = forward.op;
  Activation& activation = forward.activation;
  if (forward.gets_nan) inject_nan(activation.output);
  if (!all_finite(activation.output)) non_finite_.push_back(op);
  if (worker_.is_last(op)) {
    // The loss of a sliced micro-batch is the sum over its slices.
    at::Tensor& loss = losses_[op.micro_batch];
    const at::Tensor own = activation.output.detach();
    loss = op.slice == 0 ? own : loss + own;
    if (activation.recorded != nullptr) loss = own.clone();  // the next micro-batch's graph overwrites it
  } else {
    // Detached: the receiver makes a leaf of its own, also on the same worker, so that each op has a graph by itself.
    messages_.put(op, activation.output.detach().contiguous());
  }
  // The stage is recomputed, so its output is made again.
  if (!forward.keeps_graph) activation.output.reset();
  if (trains_) activations_.put(op, std::move(activation));
  forget_cache(op);
}

void OpRunner::recompute(const Op& backward, const LoadMicroBatch& load) {
  const Timing timing = start_timing();
  const Op op = forward_of(backward);
  Forward again{.op = op, .batch = load_slice(op, load)};
  // The activation that replaces the first one has a graph, as if the first forward had kept it. The output is not sent
  // again, and its loss does not count again: run() only makes the graph.
  again.activation.input = activations_.take(op).input;
  run(again);
  activations_.put(op, std::move(again.activation));
  end_timing(timing, op.stage, OpTimes::kRecomputation);
}

/// Returns the gradient of the input; undefined on the first stage.
at::Tensor OpRunner::run_backward(Activation& activation, const at::Tensor& gradient, bool defers_weight_gradients) {
  if (GraphSlot* place = activation.recorded) {
    // The graph has a queue of its own inside; this one only launches the graph of W.
    activation.weight_gradients = c10::make_intrusive<WeightGradients>();
    if (defers_weight_gradients) {
      activation.weight_gradients->defer();
      activation.weight_gradients->submit([place] { RecordedOps::add_weight_gradients(*place); });
    }
    return RecordedOps::backward(*place, gradient);
  }
  if (defers_weight_gradients) activation.weight_gradients->defer();
  torch::autograd::backward({activation.output}, {gradient});
  return activation.input.defined() ? activation.input.grad().contiguous() : at::Tensor();
}

/// Returns the activation, whose weight gradients may be deferred.
Activation OpRunner::propagate(const Op& op, bool defers_weight_gradients) {
  const bool gets_nan = fault_point("backward");
  Activation activation = activations_.take(op);
  at::Tensor gradient;
  // Backward of the last stage starts from its loss, whose gradient is 1 (undefined here).
  if (!worker_.is_last(op)) gradient = messages_.take_gradient(op, neighbor(op, 1));
  at::Tensor passed_back = run_backward(activation, gradient, defers_weight_gradients);
  if (!worker_.is_first(op)) {
    if (gets_nan) inject_nan(passed_back);
    if (!all_finite(passed_back)) non_finite_.push_back(op);
    messages_.put(op, std::move(passed_back));
  }
  forget_cache(op);
  return activation;
}

void OpRunner::input_gradient(const Op& op) {
  // With canonical sums, W adds to the block of its own micro-batch, but I may run while an earlier block is open.
  std::optional<HiddenGradients> hidden;
  // Layers that cannot split their backward would add to the block that is open now.
  if (sums_.is_canonical()) hidden.emplace(worker_.stage(op));
  auto owed = propagate(op, /*defers_weight_gradients=*/true).weight_gradients;
  if (hidden) hidden->show(*owed);
  weight_gradients_[key_of(forward_of(op))] = std::move(owed);
}

void OpRunner::weight_gradient(const Op& op) {
  take_out(weight_gradients_, key_of(forward_of(op)), [&] {
    return "the deferred weight gradient of " + name_of(op);
  })->run();
}

MicroBatch OpRunner::load_slice(const Op& op, const LoadMicroBatch& load) {
  MicroBatch batch = load(op.stage, op.micro_batch);
  if (worker_.slices.empty()) return batch;
  const std::vector<std::int64_t>& bounds = worker_.shape.slice_bounds;
  // Slices run in order, and each attends to the keys and values of all slices before it. One cache per micro-batch and
  // stage, which its slices share.
  auto& key_value_cache = key_value_caches_[key_of_first_slice(op)];
  if (!key_value_cache) key_value_cache = std::make_shared<KeyValueCache>(bounds.back());
  const auto slice = static_cast<std::size_t>(op.slice);
  return slice_of(std::move(batch), bounds[slice], bounds[slice + 1], key_value_cache);
}

/// Frees the keys and values of a micro-batch on a stage after their last use: the backward of slice 0, or the last
/// slice's forward if there are no backwards.
void OpRunner::forget_cache(const Op& op) {
  const bool is_forward = op.kind == OpKind::Forward;
  if (worker_.slices.empty() || is_forward == trains_) return;
  if (op.slice == (is_forward ? worker_.num_slices() - 1 : 0)) key_value_caches_.erase(key_of_first_slice(op));
}

void OpRunner::drop() {
  losses_.clear();
  weight_gradients_.clear();
  key_value_caches_.clear();
  non_finite_.clear();
  work_.drop();
  recorded_.drop();
}

}  // namespace chimera

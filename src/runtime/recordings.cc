#include "runtime/recordings.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace chimera {
namespace {

/// Returns whether both micro-batches have the same tensors with the same sizes.
bool have_equal_sizes(MicroBatch& left, MicroBatch& right) {
  // tensors_of() skips undefined tensors, so the optional ones are compared first: lists of equal length could
  // otherwise pair different fields.
  const auto sizes = [](at::Tensor* tensor) { return tensor->sizes(); };
  const auto has = [](const MicroBatch& batch) {  // optional tensors that are present
    return std::vector{batch.attention_mask.defined(), batch.documents.defined(), batch.target_indices.defined()};
  };
  return has(left) == has(right) && std::ranges::equal(tensors_of(left), tensors_of(right), {}, sizes, sizes);
}

/// Copies the tensors of `from` into the memory of `to`, a micro-batch of equal sizes.
void copy_tensors(MicroBatch& to, MicroBatch& from) {
  const std::vector<at::Tensor*> sources = tensors_of(from);
  const std::vector<at::Tensor*> targets = tensors_of(to);
  for (std::size_t i = 0; i < sources.size(); ++i) targets[i]->copy_(*sources[i], /*non_blocking=*/true);
}

/// Micro-batches of each stage that are in flight at once: after their forward, before their last backward op.
std::map<StageId, std::size_t> most_in_flight(const std::vector<Instruction>& program) {
  std::set<StageId> recomputed;
  for (const Instruction& each : program)
    if (each.kind == InstructionKind::Recompute) recomputed.insert(each.op.stage);
  std::map<StageId, std::size_t> now;
  std::map<StageId, std::size_t> most;
  for (const auto& [kind, op, peer, group, step] : program) {
    // A recomputed forward keeps no graph, so it needs no slot.
    if (kind != InstructionKind::Compute || recomputed.contains(op.stage)) continue;
    if (op.kind == OpKind::Forward) most[op.stage] = std::max(most[op.stage], ++now[op.stage]);
    if (gives_weight_gradient(op.kind)) --now[op.stage];
  }
  return most;
}

bool is_alike(const GraphSlot& slot, const at::Tensor& input, MicroBatch& batch) {
  const bool has_input = slot.input.defined();
  // Slices grow the cache with each op, so their work is not the same twice.
  if (has_input != input.defined() || batch.key_value_cache) return false;
  if (has_input && input.sizes() != slot.input.sizes()) return false;
  MicroBatch recorded = slot.batch;
  // The graph has these factors as numbers.
  return recorded.dropout.probability == batch.dropout.probability &&
         recorded.token_loss_scale == batch.token_loss_scale &&
         recorded.sentence_loss_scale == batch.sentence_loss_scale && have_equal_sizes(recorded, batch);
}

}  // namespace

bool RecordedSteps::is_before() {
  if (steps_before_ == 0) return false;
  --steps_before_;
  return true;
}

void RecordedSteps::run(std::span<const Instruction> part, const LoadMicroBatch& load, const CaptureGraph& record,
                        const Run& run, StepLosses& losses) {
  // Loaded at the end of the last step, or now if there was none.
  Batches batches = next_ ? *std::exchange(next_, std::nullopt) : load_all(part, load);
  if (work_) {
    if (!has_sizes_of(batches)) throw std::logic_error("micro-batches of other sizes without a new recording");
    for (auto& [place, batch] : batches) copy_tensors(batches_.at(place), batch);
  } else {
    // The graph reads the tensors of these micro-batches and writes these losses in every later step, so both are kept.
    losses_.clear();
    batches_ = std::move(batches);
    const auto work = [&] { run(part, [&](StageId stage, MicroBatchId id) { return batches_.at({stage, id}); }); };
    work_ = record(work, /*shared=*/nullptr, /*generators=*/{});
    losses_ = std::move(losses);
  }
  // Capturing has not run the work, so the step that records launches it as well.
  work_->repeat();
  losses = losses_;
}

void RecordedSteps::load_next(std::span<const Instruction> part, const LoadMicroBatch& load) {
  next_ = load_all(part, load);
}

RecordedSteps::Batches RecordedSteps::load_all(std::span<const Instruction> part, const LoadMicroBatch& load) {
  Batches batches;
  for (const Instruction& instruction : part) {
    const Op& op = instruction.op;
    // Only forwards load micro-batches.
    if (instruction.kind != InstructionKind::Compute || op.kind != OpKind::Forward) continue;
    batches.emplace(Place(op.stage, op.micro_batch), load(op.stage, op.micro_batch));
  }
  return batches;
}

bool RecordedSteps::has_sizes_of(Batches& batches) {
  return std::ranges::equal(batches_, batches, [](auto& recorded, auto& own) {
    return recorded.first == own.first && have_equal_sizes(recorded.second, own.second);
  });
}

void RecordedOps::make_slots(const std::vector<Instruction>& program, const LoadMicroBatch& load) {
  slots_.clear();
  for (const auto& [stage, count] : most_in_flight(program)) {
    const auto is_forward = [stage = stage](const Instruction& each) {
      return each.kind == InstructionKind::Compute && each.op.kind == OpKind::Forward && each.op.stage == stage;
    };
    Op op = std::ranges::find_if(program, is_forward)->op;
    MicroBatch batch = load(stage, op.micro_batch);
    const auto zeros = [&](const TensorSpec& spec) {
      return at::zeros(spec.sizes, at::device(worker_.device()).dtype(spec.dtype));
    };
    for (std::size_t i = 0; i < count; ++i) {
      GraphSlot& slot = *slots_[stage].emplace_back(std::make_unique<GraphSlot>());
      slot.batch = batch;
      // Own memory: graphs read from these addresses, and forward() copies each micro-batch there.
      for (at::Tensor* tensor : tensors_of(slot.batch)) *tensor = tensor->clone();
      if (!worker_.is_last(op)) slot.output_gradient = zeros(worker_.message_of(op));
      if (worker_.is_first(op)) continue;
      // The input has the size of what the stage before sends.
      Op before = op;
      before.stage = StageId(stage.value() - 1);
      slot.input = zeros(worker_.message_of(before)).requires_grad_(true);
    }
  }
}

void RecordedOps::make_generators() {
  const at::NoGradGuard no_graph;
  for (auto& [stage, slots] : slots_) {
    for (const auto& slot : slots) {
      Dropout& dropout = slot->batch.dropout;
      if (!dropout.is_active()) continue;
      dropout.graph = &slot->masks;
      // Counts the masks of a forward (GraphMasks::next()).
      static_cast<void>(worker_.stages.at(stage)->forward(slot->input, slot->batch));
      slot->masks.make_generators(worker_.device());
    }
  }
}

void RecordedOps::record(const std::vector<Instruction>& program, const LoadMicroBatch& load,
                         const CaptureGraph& capture) {
  make_slots(program, load);
  make_generators();
  const bool splits = std::ranges::any_of(program, [](const Instruction& each) {
    return each.kind == InstructionKind::Compute && each.op.kind == OpKind::BackwardWeight;
  });
  const auto record_kind = [&](std::unique_ptr<DeviceGraph> GraphSlot::*graph, const auto& work) {
    const DeviceGraph* first = nullptr;
    for (auto& [stage, slots] : slots_) {
      for (const auto& slot : slots) {
        // All graphs of a kind share the memory pool of the first (recordings.h). Capturing does not run the work, so
        // it is run once.
        slot.get()->*graph = capture([&, id = stage] { work(id, *slot); }, first, slot->masks.generators());
        (slot.get()->*graph)->repeat();
        if (first == nullptr) first = (slot.get()->*graph).get();
      }
    }
  };
  record_kind(&GraphSlot::forward, [&](StageId stage, GraphSlot& slot) {
    const WeightGradients::Scope scope(slot.weight_gradients);
    slot.output = worker_.stages.at(stage)->forward(slot.input, slot.batch);
  });
  record_kind(&GraphSlot::backward, [&](StageId /*stage*/, GraphSlot& slot) {
    // While recording, deferred functions are collected; running them is recorded as the graph of W.
    if (splits) slot.weight_gradients->defer();
    torch::autograd::backward({slot.output}, {slot.output_gradient});
  });
  if (!splits) return;
  record_kind(&GraphSlot::weights, [](StageId /*stage*/, GraphSlot& slot) { slot.weight_gradients->run(); });
}

GraphSlot* RecordedOps::forward(const Op& op, const at::Tensor& input, MicroBatch batch) {
  const auto found = slots_.find(op.stage);
  if (found == slots_.end()) return nullptr;
  const auto free = std::ranges::find_if(found->second, [](const auto& slot) { return !slot->is_used; });
  if (free == found->second.end() || !is_alike(**free, input, batch)) return nullptr;
  GraphSlot& slot = **free;
  const at::NoGradGuard no_graph;
  if (input.defined()) slot.input.copy_(input, /*non_blocking=*/true);
  copy_tensors(slot.batch, batch);
  slot.masks.reseed(batch.dropout);
  slot.is_used = true;
  slot.forward->repeat();
  return &slot;
}

at::Tensor RecordedOps::backward(GraphSlot& slot, const at::Tensor& output_gradient) {
  const at::NoGradGuard no_graph;
  if (slot.output_gradient.defined()) slot.output_gradient.copy_(output_gradient, /*non_blocking=*/true);
  slot.backward->repeat();
  // Without a graph of W, this was the last use of the slot.
  if (!slot.weights) slot.is_used = false;
  return slot.input.defined() ? slot.input.grad().clone(at::MemoryFormat::Contiguous) : at::Tensor();
}

void RecordedOps::add_weight_gradients(GraphSlot& slot) {
  slot.weights->repeat();
  slot.is_used = false;
}

void RecordedOps::drop() {
  for (auto& [stage, slots] : slots_)
    for (const auto& slot : slots) slot->is_used = false;
}

}  // namespace chimera

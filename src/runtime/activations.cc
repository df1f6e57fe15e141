#include "runtime/activations.h"

#include <utility>

#include "core/invariant.h"

namespace chimera {
namespace {

std::string missing(const Op& op) { return "the activation of " + name_of(forward_of(op)); }

}  // namespace

void Activations::begin(const std::vector<Instruction>& program) {
  recomputed_.clear();
  offloaded_.clear();
  for (const Instruction& instruction : program) {
    // A stage recomputes all its micro-batches or none. Offloads name single forwards: one whose backward follows soon
    // stays on the device (schedule/offload.h).
    if (instruction.kind == InstructionKind::Recompute) recomputed_.insert(instruction.op.stage);
    if (instruction.kind == InstructionKind::Offload) offloaded_.insert(key_of(instruction.op));
  }
}

std::unique_ptr<SavedTensors> Activations::saved_tensors_of(const Op& forward) const {
  return offloaded_.contains(key_of(forward)) ? std::make_unique<SavedTensors>() : nullptr;
}

void Activations::put(const Op& forward, Activation activation) {
  const bool is_new = activations_.emplace(key_of(forward), std::move(activation)).second;
  if (!is_new) throw InternalError("the activation of " + name_of(forward) + " exists twice");
}

Activation& Activations::find(const Op& op) {
  const auto found = activations_.find(key_of(forward_of(op)));
  if (found == activations_.end()) throw InternalError(missing(op) + " is missing");
  return found->second;
}

Activation Activations::take(const Op& op) {
  // A load has been enqueued before. Kernels of the backward must not start before its copies end, so the current
  // stream waits for them; the host does not.
  Activation activation = take_out(activations_, key_of(forward_of(op)), [&] { return missing(op); });
  if (activation.saved == nullptr) return activation;
  activation.saved->await();
  activation.saved.reset();
  if (activation.saved_input) {
    // offload() detached the input; its gradient is sent to the stage before.
    activation.input = std::exchange(activation.saved_input, {})->requires_grad_(true);
  }
  return activation;
}

void Activations::offload(const Op& op) {
  Activation& activation = find(op);
  // A recomputed forward has made no graph yet, so its input is all that it keeps.
  if (recomputed_.contains(op.stage)) {
    activation.saved_input = activation.saved->add(std::exchange(activation.input, {}).detach());
  }
  activation.saved->offload(*copies_);
}

void Activations::load(const Op& op) { find(op).saved->load(*copies_); }

}  // namespace chimera

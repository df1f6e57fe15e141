#include "runtime/recorded_steps.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace chimera {

bool have_equal_sizes(MicroBatch& left, MicroBatch& right) {
  // tensors_of() skips undefined tensors, so the optional ones are compared first: lists of equal length could
  // otherwise pair different fields.
  const auto sizes = [](at::Tensor* tensor) { return tensor->sizes(); };
  const auto has = [](const MicroBatch& batch) {  // optional tensors that are present
    return std::vector{batch.attention_mask.defined(), batch.documents.defined(), batch.target_indices.defined()};
  };
  return has(left) == has(right) && std::ranges::equal(tensors_of(left), tensors_of(right), {}, sizes, sizes);
}

void copy_tensors(MicroBatch& to, MicroBatch& from) {
  const std::vector<at::Tensor*> sources = tensors_of(from);
  const std::vector<at::Tensor*> targets = tensors_of(to);
  for (std::size_t i = 0; i < sources.size(); ++i) targets[i]->copy_(*sources[i], /*non_blocking=*/true);
}

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

}  // namespace chimera

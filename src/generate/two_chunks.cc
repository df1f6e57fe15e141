#include "generate/two_chunks.h"

namespace chimera {
namespace {

std::size_t chunk_of(Step step) { return static_cast<std::size_t>(step) % 2; }

OpKind kind_of(Step step) {
  switch (step) {
    case Step::F0:
    case Step::F1: return OpKind::Forward;
    case Step::B0:
    case Step::B1: return OpKind::Backward;
    case Step::I0:
    case Step::I1: return OpKind::BackwardInput;
    case Step::W0:
    case Step::W1:
    case Step::OldestW: return OpKind::BackwardWeight;
    case Step::And: break;
  }
  return OpKind::Forward;
}

}  // namespace

TwoChunks::TwoChunks(const Chunk& chunk0, const Chunk& chunk1) : progress_{Progress{chunk0}, Progress{chunk1}} {
  ops_.reserve(static_cast<std::size_t>(3 * (chunk0.count + chunk1.count)));
}

std::int64_t& TwoChunks::next_of(Step step) {
  auto& next = progress_[chunk_of(step)].next;
  switch (kind_of(step)) {
    case OpKind::Forward: return next[kForward];
    case OpKind::BackwardWeight: return next[kWeight];
    default: return next[kBackward];
  }
}

void TwoChunks::repeat(std::int64_t times, std::initializer_list<Step> steps) {
  for (std::int64_t done = 0; done < times; ++done) {
    const std::size_t before = ops_.size();
    for (const Step step : steps) write(step);
    if (ops_.size() != before) continue;
    for (const Step step : steps) {  // the other times would write nothing either
      if (step != Step::OldestW && step != Step::And) next_of(step) += times - done - 1;
    }
    return;
  }
}

void TwoChunks::write(Step step) {
  if (step == Step::OldestW) return write_oldest_weight_gradient();
  if (step == Step::And) {
    ops_.back().paired = true;
    return;
  }
  const Chunk& chunk = progress_[chunk_of(step)].chunk;
  const std::int64_t m = next_of(step)++;
  if (m < chunk.count) ops_.push_back({kind_of(step), chunk.replica, chunk.stage, MicroBatchId(chunk.first + m)});
}

void TwoChunks::write_oldest_weight_gradient() {
  while (oldest_ < ops_.size() && ops_[oldest_].kind != OpKind::BackwardInput) ++oldest_;
  if (oldest_ == ops_.size()) return;
  Op op = ops_[oldest_++];
  op.kind = OpKind::BackwardWeight;
  ops_.push_back(op);
}

}  // namespace chimera

#include "runtime/non_finite.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <limits>

namespace chimera {
namespace {

/// Returns whether any exponent has all bits set: adding its lowest bit then carries into the sign bit.
template <class Bits>
bool any_exponent_full(const void* data, std::int64_t count, Bits exponent) {
  const auto* element = static_cast<const Bits*>(data);
  // No branch and no conversion, so that compilers vectorize the loop: it reads each result of each op.
  const Bits one = exponent & (~exponent + 1);
  Bits sums = 0;
  for (std::int64_t i = 0; i < count; ++i) sums |= static_cast<Bits>((element[i] & exponent) + one);
  return (sums & static_cast<Bits>(exponent + one)) != 0;
}

}  // namespace

bool all_finite(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) return true;
  if (!tensor.is_contiguous()) return all_finite(tensor.contiguous());
  switch (tensor.scalar_type()) {
    case at::kFloat: return !any_exponent_full<std::uint32_t>(tensor.const_data_ptr(), tensor.numel(), 0x7f80'0000U);
    case at::kDouble:
      return !any_exponent_full<std::uint64_t>(tensor.const_data_ptr(), tensor.numel(), 0x7ff0ULL << 48U);
    case at::kBFloat16: return !any_exponent_full<std::uint16_t>(tensor.const_data_ptr(), tensor.numel(), 0x7f80U);
    default: return at::isfinite(tensor).all().item<bool>();
  }
}

void inject_nan(const at::Tensor& tensor) {
  // variable_data() has no graph and no version counter, so autograd notices nothing.
  tensor.variable_data().as_strided({1}, {1}, tensor.storage_offset()).fill_(std::numeric_limits<double>::quiet_NaN());
}

std::size_t SpreadOrder::index(GroupId group, const Op& op) const {
  const bool forward = op.kind == OpKind::Forward;
  const std::int64_t stage = forward ? op.stage.value() : stages_ - 1 - op.stage.value();
  // Digits of the number, highest first: direction, group, micro-batch, stage.
  const std::int64_t run = ((forward ? 0 : groups_) + group.value()) * micro_batches_ + op.micro_batch.value();
  return static_cast<std::size_t>(run * stages_ + stage);
}

SpreadOrder::Place SpreadOrder::place(std::size_t index) const {
  const auto number = static_cast<std::int64_t>(index);
  // The inverse of index().
  const std::int64_t run = number / stages_ / micro_batches_;  // groups forward, then groups backward
  const bool forward = run < groups_;
  const std::int64_t stage = forward ? number % stages_ : stages_ - 1 - number % stages_;
  return {GroupId(run % groups_),
          {forward ? OpKind::Forward : OpKind::Backward, ReplicaId(0), StageId(stage),
           MicroBatchId(number / stages_ % micro_batches_)}};
}

std::string describe_result(const Op& op, std::int64_t stages) {
  const auto stage = op.stage.value();
  const auto micro_batch = op.micro_batch.value();
  if (op.kind != OpKind::Forward) {
    return fmt::format("the gradient that stage {} passes back for micro-batch {}", stage, micro_batch);
  }
  if (stage + 1 == stages) return fmt::format("the loss of micro-batch {} (stage {})", micro_batch, stage);
  return fmt::format("the output of stage {} for micro-batch {}", stage, micro_batch);
}

}  // namespace chimera

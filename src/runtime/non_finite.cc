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

std::vector<GroupOp> spread_order(std::int64_t groups, std::int64_t micro_batches, std::int64_t stages) {
  std::vector<GroupOp> order;
  for (const OpKind kind : {OpKind::Forward, OpKind::Backward}) {
    for (GroupId group(0); group.value() < groups; group = GroupId(group.value() + 1)) {
      for (std::int64_t m = 0; m < micro_batches; ++m) {
        for (std::int64_t s = 0; s < stages; ++s) {
          const StageId stage(kind == OpKind::Forward ? s : stages - 1 - s);
          order.push_back({group, {kind, ReplicaId(0), stage, MicroBatchId(m)}});
        }
      }
    }
  }
  return order;
}

std::string describe_result(const Op& op, std::int64_t stages) {
  const auto stage = op.stage.value();
  const auto micro_batch = op.micro_batch.value();
  if (op.kind != OpKind::Forward)
    return fmt::format("the gradient that stage {} passes back for micro-batch {}", stage, micro_batch);
  if (stage + 1 == stages) return fmt::format("the loss of micro-batch {} (stage {})", micro_batch, stage);
  return fmt::format("the output of stage {} for micro-batch {}", stage, micro_batch);
}

}  // namespace chimera

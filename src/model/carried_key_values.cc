#include "model/carried_key_values.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "core/invariant.h"

namespace chimera {

/// The result ends with the slice. It does not share the version counter of `all`, which later slices write to.
at::Tensor CarriedKeyValues::append(Carried& carried, const at::Tensor& own, std::int64_t first) const {
  const std::int64_t end = first + own.size(1);
  require_invariant(end <= sequence_, "a slice ends behind its sequence");
  if (!carried.all.defined()) carried.all = at::empty({own.size(0), sequence_, own.size(2)}, own.options());
  // A recomputed forward finds its tokens already there and must not write them again: later slices use them.
  if (carried.filled < end) {
    require_invariant(carried.filled == first, "slices run forward out of order");
    carried.all.narrow(1, first, end - first).copy_(own);
    carried.filled = end;
  }
  return carried.all.narrow(1, 0, end).variable_data();
}

/// Adds the earlier tokens' part of `gradient` to their gradients.
at::Tensor CarriedKeyValues::take_own(Carried& carried, const at::Tensor& gradient, std::int64_t first) {
  const at::ScalarType type = gradient.scalar_type();
  const std::int64_t length = gradient.size(1) - first;
  // Slices run backward from the last, so the gradients of later slices are complete here.
  at::Tensor sum = std::exchange(carried.gradients, {});
  const at::Tensor own = gradient.narrow(1, first, length);
  const at::Tensor result = sum.defined() ? (sum.narrow(1, first, length) + own).to(type) : own.clone();
  if (first == 0) return result;
  const at::Tensor earlier = gradient.narrow(1, 0, first);
  carried.gradients = sum.defined()
                          ? sum.narrow(1, 0, first).add_(earlier)
                          : earlier.to(at::promote_types(type, at::kFloat), /*non_blocking=*/false, /*copy=*/true);
  return result;
}

struct CarriedKeyValues::CarryFunction : torch::autograd::Function<CarriedKeyValues::CarryFunction> {
  struct Place : torch::CustomClassHolder {
    std::shared_ptr<CarriedKeyValues> carried;
    std::size_t block = 0;
    std::int64_t first = 0;
  };

  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& key,
                                                const at::Tensor& value,
                                                const std::shared_ptr<CarriedKeyValues>& carried, std::size_t block,
                                                std::int64_t first) {
    auto& blocks = carried->blocks_;
    if (block >= blocks.size()) blocks.resize(block + 1);
    auto place = c10::make_intrusive<Place>();
    place->carried = carried;
    place->block = block;
    place->first = first;
    context->saved_data["place"] = at::IValue::make_capsule(std::move(place));
    return {carried->append(blocks[block].keys, key, first), carried->append(blocks[block].values, value, first)};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto place = c10::static_intrusive_pointer_cast<Place>(context->saved_data["place"].toCapsule());
    auto& block = place->carried->blocks_[place->block];
    return {CarriedKeyValues::take_own(block.keys, gradients[0], place->first),
            CarriedKeyValues::take_own(block.values, gradients[1], place->first), at::Tensor(), at::Tensor(),
            at::Tensor()};
  }
};

QueryKeyValue with_earlier_slices(const std::shared_ptr<CarriedKeyValues>& carried, std::size_t block,
                                  std::int64_t first, const QueryKeyValue& own) {
  const auto all = CarriedKeyValues::CarryFunction::apply(own.key, own.value, carried, block, first);
  return {own.query.contiguous(), all[0], all[1]};  // not as part of one projection, which backward would keep whole
}

}  // namespace chimera

#include "model/parameter_group.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "core/invariant.h"
#include "core/mapped.h"
#include "core/shared_memory.h"

namespace chimera {
namespace {

void report(const SharedMemory& memory, std::int64_t bytes) {
  // LibTorch reports only memory of its own allocators, but MemoryMeter must count gradients too.
  if (c10::memoryProfilingEnabled())
    c10::reportMemoryUsageToProfiler(memory.data(), bytes, memory.size(), memory.size(), at::kCPU);
}

at::Tensor leaf_of(const at::Tensor& value, const at::Tensor& gradient) {
  at::Tensor leaf = value.detach().requires_grad_();
  // Autograd adds in place to a gradient that exists, so sums appear in the flat tensor without a copy.
  leaf.mutable_grad() = gradient.view(value.sizes());
  return leaf;
}

thread_local const OwnerScope* current_scope = nullptr;

}  // namespace

at::Tensor shared_zeros(std::int64_t count, const at::TensorOptions& options) {
  if (!options.device().is_cpu()) return at::zeros({count}, options);
  const auto bytes = count * static_cast<std::int64_t>(options.dtype().itemsize());
  // At least one byte, because an empty mapping is an error.
  auto memory = std::make_shared<SharedMemory>(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
  report(*memory, bytes);
  void* data = memory->data();
  const auto release = [memory = std::move(memory), bytes](void* /*data*/) { report(*memory, -bytes); };
  return at::from_blob(data, {count}, release, options);
}

OwnerScope::OwnerScope(Owners owners) : ScopedValue(current_scope, this), owners_(std::move(owners)) {}

std::vector<std::size_t> OwnerScope::owners(const std::vector<Parameter>& parameters) {
  return current_scope == nullptr ? std::vector<std::size_t>{} : current_scope->owners_(parameters);
}

ParameterGroup::ParameterGroup(std::vector<Parameter> parameters, std::size_t num_accumulators)
    : parameters_(std::move(parameters)), owners_(OwnerScope::owners(parameters_)) {
  if (!owners_.empty()) sort_by_owner();
  make_gradients(num_accumulators);
}

void ParameterGroup::make_gradients(std::size_t num_accumulators) {
  constexpr std::int64_t kAlignment = 64;  // bytes: a product's last bits may depend on its output's alignment
  std::int64_t count = 0;
  std::vector<std::int64_t> offsets;
  for (const Parameter& parameter : parameters_) {
    const std::int64_t elements = kAlignment / static_cast<std::int64_t>(parameter.value.element_size());
    // Rounded up to the next multiple; the elements that are skipped stay zero, and sums over ranks keep them zero.
    offsets.push_back((count + elements - 1) / elements * elements);
    count = offsets.back() + parameter.value.numel();
  }
  accumulators_.clear();
  while (accumulators_.size() < num_accumulators)
    accumulators_.push_back(shared_zeros(count, parameters_.front().value.options()));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& value = parameters_[i].value;
    value.requires_grad_();
    value.mutable_grad() = gradients().narrow(0, offsets[i], value.numel()).view(value.sizes());
  }
}

void ParameterGroup::sort_by_owner() {
  require_invariant(owners_.size() == parameters_.size(), "a parameter of a group has no owner");
  std::vector<std::size_t> order(owners_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t p) { return owners_[p]; });
  // Sorted by owner, so that the parameters of an owner lie side by side in the flat gradients, and a reduce-scatter
  // gives each rank one range.
  parameters_ = mapped<Parameter>(order, [this](std::size_t p) { return parameters_[p]; });
  std::ranges::sort(owners_);
}

void ParameterGroup::zero_gradients() {
  for (at::Tensor& sum : accumulators_) sum.zero_();
}

void ParameterGroup::add_accumulators() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 1; i < accumulators_.size(); ++i) gradients().add_(accumulators_[i]);
}

TiedWeight::TiedWeight(Parameter weight, const TiedUses& uses)
    : ParameterGroup({std::move(weight)}, uses.embedding && uses.head ? 2 : 1) {
  const at::Tensor& value = parameters().front().value;
  // Both leaves share the memory of the value, so an update of the parameter is seen by both uses.
  if (uses.embedding) leaves_.embedding = leaf_of(value, accumulators().front());
  if (uses.head) leaves_.head = leaf_of(value, accumulators().back());
}

std::vector<std::size_t> owners_of(const std::vector<std::int64_t>& sizes, std::size_t members) {
  const std::int64_t elements = std::max(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), std::int64_t{1});
  const auto shares = static_cast<std::int64_t>(members);
  std::int64_t first = 0;
  std::vector<std::size_t> owners;
  for (const std::int64_t count : sizes) {
    // The middle of the parameter, times two to stay in whole numbers.
    const std::int64_t owner = (2 * first + count) * shares / (2 * elements);
    owners.push_back(static_cast<std::size_t>(std::min(owner, shares - 1)));  // empty ones may be behind the last share
    first += count;
  }
  return owners;
}

std::vector<std::size_t> owners_of(const ParameterGroup& group, std::size_t members) {
  if (members > 1 && !group.owners().empty()) return group.owners();
  const auto size_of = [](const Parameter& one) { return std::max(one.whole_elements, one.value.numel()); };
  return owners_of(mapped<std::int64_t>(group.parameters(), size_of), members);
}

std::vector<std::int64_t> shard_sizes(ParameterGroup& group, std::size_t members) {
  const std::vector<std::size_t> owners = owners_of(group, members);
  const at::Tensor& gradients = group.gradients();
  std::vector<std::int64_t> ends(members, 0);  // [member]: first element of a later owner
  for (std::size_t member = 0; member < members; ++member) {
    // First parameter of a later owner; owners ascend. Its offset also counts the padding before it.
    const auto next = static_cast<std::size_t>(std::ranges::upper_bound(owners, member) - owners.begin());
    ends[member] = next == owners.size()
                       ? gradients.numel()
                       : group.parameters()[next].value.grad().storage_offset() - gradients.storage_offset();
  }
  // From ends to sizes: [3, 3, 8] becomes [3, 0, 5].
  std::adjacent_difference(ends.begin(), ends.end(), ends.begin());
  return ends;
}

}  // namespace chimera

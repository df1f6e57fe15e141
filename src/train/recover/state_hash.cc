#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include "train/recover/state_hash.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "core/mapped.h"
#include "launch/local/rank.h"

namespace chimera {
namespace {

constexpr std::int64_t kHashedAtOnce = 1 << 22;  // elements; bounds temporary memory
// 2^64 divided by the golden ratio, whose multiples spread evenly over all values.
constexpr auto kOddMultiplier = static_cast<std::int64_t>(0x9e37'79b9'7f4a'7c15U);

at::Tensor as_integers(const at::Tensor& tensor) {
  // Bits count, not numbers: 0 and -0 differ, and a NaN equals itself.
  switch (tensor.element_size()) {
    case 1: return tensor.view(at::kChar).flatten();
    case 2: return tensor.view(at::kShort).flatten();
    case 4: return tensor.view(at::kInt).flatten();
    default: return tensor.view(at::kLong).flatten();
  }
}

}  // namespace

std::uint64_t hash_bytes(std::span<const at::Tensor> tensors, const HashHooks& hooks) {
  if (!tensors.empty() && !tensors.front().is_cpu()) return element_hash(tensors, hooks);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor value = tensor.contiguous();
    XXH3_64bits_update(&state, value.data_ptr(), value.nbytes());
    if (hooks.after_tensor) hooks.after_tensor();
  }
  return XXH3_64bits_digest(&state);
}

/// Sums elements times odd weights, modulo 2^64. A change of an element is less than 2^64, so its product with an odd
/// weight is not 0.
std::uint64_t element_hash(std::span<const at::Tensor> tensors, const HashHooks& hooks) {
  const at::NoGradGuard no_grad;
  if (tensors.empty()) return 0;
  const auto options = at::TensorOptions(tensors.front().device()).dtype(at::kLong);
  // The odd numbers 1, 3, 5, ... times the multiplier: all weights are odd and different.
  const std::int64_t most = std::ranges::max(tensors, {}, &at::Tensor::numel).numel();
  const at::Tensor weights = at::arange(1, 2 * std::min(most, kHashedAtOnce) + 1, 2, options).mul_(kOddMultiplier);
  const at::Tensor hash = at::zeros({}, options);
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor elements = as_integers(tensor.detach());
    // Multiplying the hash so far by an odd number makes the order of parts and tensors matter, and loses no bit.
    for (std::int64_t first = 0; first < elements.numel(); first += kHashedAtOnce) {
      const at::Tensor part = elements.narrow(0, first, std::min(kHashedAtOnce, elements.numel() - first));
      hash.mul_(kOddMultiplier).add_(part.mul(weights.narrow(0, 0, part.numel())).sum());
    }
    if (hooks.after_tensor) hooks.after_tensor();
  }
  if (hooks.before_wait) hooks.before_wait();
  return static_cast<std::uint64_t>(hash.item<std::int64_t>());
}

std::string parameters_hash(const std::vector<std::string>& names, const std::vector<const ParameterGroup*>& own,
                            Transport& transport, const TensorPlace& place) {
  const auto ranks = static_cast<std::size_t>(place.ranks);
  std::vector<double> halves(2 * names.size() * ranks, 0);
  for (const ParameterGroup* group : own) {
    for (const Parameter& parameter : group->parameters()) {
      const at::Tensor value = parameter.value.cpu();
      const auto [high, low] = hash_halves(XXH3_64bits(value.data_ptr(), value.nbytes()));
      // `names` is sorted and the same on all ranks, so each parameter has a place of its own in the sum.
      const auto name = static_cast<std::size_t>(std::ranges::lower_bound(names, parameter.name) - names.begin());
      const std::size_t number = name * ranks + static_cast<std::size_t>(place.rank);
      halves[2 * number] = high;
      halves[2 * number + 1] = low;
      note_more_progress();
    }
  }
  transport.all_sum(halves);
  const auto words = mapped(halves, [](double half) { return static_cast<std::uint32_t>(half); });
  // A hash of the hashes in the order of names, which does not depend on stages, workers or groups.
  return fmt::format("{:016x}", XXH3_64bits(words.data(), words.size() * sizeof(std::uint32_t)));
}

}  // namespace chimera

#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include "train/recover/copies.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace chimera {
namespace {

/// 32 bits each: exact in a sum with zeros.
using Halves = std::pair<double, double>;

Halves halves_of(std::uint64_t hash) {
  return {static_cast<double>(hash >> 32U), static_cast<double>(hash & 0xffffffffU)};
}

DeviatingStage stage_of(const StageCopies& copies, const std::vector<Halves>& hashes) {
  const auto count = [&](const Halves& hash) { return std::ranges::count(hashes, hash); };
  const auto right = std::ranges::max_element(hashes, {}, count);
  DeviatingStage stage{.copies = copies,
                       .odd = {},
                       .right = copies.ranks[static_cast<std::size_t>(right - hashes.begin())],
                       .has_majority = 2 * count(*right) > std::ssize(hashes)};
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i] != *right) stage.odd.push_back(copies.ranks[i]);
  }
  return stage;
}

std::string numbers(const std::vector<RankId>& ranks) {
  std::vector<std::int64_t> values;
  for (const RankId rank : ranks) values.push_back(rank.value());
  return fmt::format("{}", fmt::join(values, ", "));
}

constexpr std::int64_t kHashedAtOnce = 1 << 22;  // elements; bounds temporary memory
constexpr auto kOddMultiplier = static_cast<std::int64_t>(0x9e37'79b9'7f4a'7c15U);

at::Tensor as_integers(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1: return tensor.view(at::kChar).flatten();
    case 2: return tensor.view(at::kShort).flatten();
    case 4: return tensor.view(at::kInt).flatten();
    default: return tensor.view(at::kLong).flatten();
  }
}

}  // namespace

std::vector<StageCopies> stage_copies(const Job& job) {
  std::vector<StageCopies> all;
  const auto add = [&](ParameterGroupId group, std::vector<RankId> ranks) {
    if (ranks.size() > 1) all.push_back({group, std::move(ranks)});
  };
  const auto groups = job.run.worker_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const ParameterGroupId group(static_cast<std::int64_t>(g));
    if (!job.run.schedule.updates) {
      add(group, job.run.rank_groups()[g]);
      continue;
    }
    for (const WorkerId worker : groups[g]) {
      std::vector<RankId> ranks;
      for (std::int64_t w = 0; w < job.run.ranks.data_parallel; ++w)
        ranks.push_back(job.run.ranks.rank({GroupId(w), worker}));
      add(group, std::move(ranks));
    }
  }
  return all;
}

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
  const std::int64_t most = std::ranges::max(tensors, {}, &at::Tensor::numel).numel();
  const at::Tensor weights = at::arange(1, 2 * std::min(most, kHashedAtOnce) + 1, 2, options).mul_(kOddMultiplier);
  const at::Tensor hash = at::zeros({}, options);
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor elements = as_integers(tensor.detach());
    for (std::int64_t first = 0; first < elements.numel(); first += kHashedAtOnce) {
      const at::Tensor part = elements.narrow(0, first, std::min(kHashedAtOnce, elements.numel() - first));
      hash.mul_(kOddMultiplier).add_(part.mul(weights.narrow(0, 0, part.numel())).sum());
    }
    if (hooks.after_tensor) hooks.after_tensor();
  }
  if (hooks.before_wait) hooks.before_wait();
  return static_cast<std::uint64_t>(hash.item<std::int64_t>());
}

std::vector<DeviatingStage> differing_stages(const std::vector<StageCopies>& copies, const StateHashes& own,
                                             RankId rank, Transport& transport) {
  std::vector<double> numbers;  // [copies][rank], two halves each
  for (const StageCopies& stage : copies) {
    for (const RankId member : stage.ranks) {
      const auto [high, low] = halves_of(member == rank ? own.at(stage.group) : 0);
      numbers.insert(numbers.end(), {high, low});
    }
  }
  if (numbers.empty()) return {};
  transport.all_sum(numbers);
  std::vector<DeviatingStage> differing;
  auto number = numbers.begin();
  for (const StageCopies& stage : copies) {
    std::vector<Halves> hashes;
    for (std::size_t i = 0; i < stage.ranks.size(); ++i, number += 2) hashes.emplace_back(number[0], number[1]);
    if (DeviatingStage found = stage_of(stage, hashes); !found.odd.empty()) differing.push_back(std::move(found));
  }
  return differing;
}

std::string describe(const DeviatingStage& stage, std::int64_t step) {
  const std::string which = stage.has_majority
                                ? fmt::format("and the copy of rank {} is not equal to the others", numbers(stage.odd))
                                : "and no majority shows the right copy";
  return fmt::format(
      "the copies of stage {} on ranks {} differ after step {}, {}: memory, a processor or a network changed bits; "
      "test the machine, and train again",
      stage.copies.group.value(), numbers(stage.copies.ranks), step, which);
}

}  // namespace chimera

#include "engine/dealing.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "generate/detours.h"
#include "simulate/permute.h"

namespace chimera {
namespace {

/// Deals the samples to micro-batches of `size`, largest first, each to the one with the least work that has room.
std::vector<std::int64_t> even_micro_batches(const std::vector<double>& work, std::size_t size) {
  struct Dealt {
    double work = 0;
    std::vector<std::int64_t> samples = {};
  };
  std::vector<Dealt> batches(work.size() / size);
  std::vector<std::int64_t> order(work.size());
  std::iota(order.begin(), order.end(), 0);
  const auto work_of = [&](std::int64_t sample) { return work[static_cast<std::size_t>(sample)]; };
  std::ranges::stable_sort(order, std::ranges::greater(), work_of);
  for (const std::int64_t sample : order) {
    Dealt* least = nullptr;
    for (Dealt& batch : batches)
      if (batch.samples.size() < size && (least == nullptr || batch.work < least->work)) least = &batch;
    least->work += work_of(sample);
    least->samples.push_back(sample);
  }
  for (Dealt& batch : batches) std::ranges::sort(batch.samples);
  std::ranges::sort(batches, {}, [](const Dealt& batch) { return batch.samples.front(); });
  std::vector<std::int64_t> samples;
  for (const Dealt& batch : batches) samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
  return samples;
}

}  // namespace

std::vector<std::int64_t> fast_places(const RunShape& run, std::vector<double> work) {
  if (work.empty() || std::ranges::min(work) == std::ranges::max(work)) return {};
  const double mean = std::accumulate(work.begin(), work.end(), 0.0) / static_cast<double>(work.size());
  for (double& each : work) each /= mean;
  const Schedule all = in_all_groups(run.schedule, run.ranks.data_parallel);
  std::vector<std::int64_t> place_of;  // [micro-batch of all groups]
  for (GroupId group(0); group.value() < run.ranks.data_parallel; group = GroupId(group.value() + 1))
    for (std::int64_t m = 0; m < run.schedule.micro_batches; ++m)
      place_of.push_back(run.position(group, MicroBatchId(m)));
  CostModel costs = CostModel::uniform(all, {.forward = 1, .backward = 2, .input_gradient = 1, .weight_gradient = 1});
  costs.micro_batches = work_of_places(work, place_of);
  const std::vector<std::int64_t> permuted = permuted_micro_batches(all, costs);
  std::vector<std::int64_t> micro_batch_at(work.size());
  for (std::size_t id = 0; id < permuted.size(); ++id)
    micro_batch_at[static_cast<std::size_t>(place_of[id])] = place_of[static_cast<std::size_t>(permuted[id])];
  return micro_batch_at;
}

DealtStep deal_step(const RunShape& run, const std::vector<double>& work, bool permutes) {
  DealtStep dealt;
  if (run.schedule.updates || std::ranges::min(work) == std::ranges::max(work)) return dealt;
  const auto size = static_cast<std::size_t>(run.micro_batch_size);
  if (size > 1 && work.size() % size == 0) dealt.sample_of = even_micro_batches(work, size);
  if (!permutes) return dealt;
  const std::int64_t samples = run.samples_per_op();
  std::vector<double> sums(static_cast<std::size_t>(run.micro_batches()), 0);
  for (std::int64_t i = 0; i < run.mini_batch(); ++i)
    sums[static_cast<std::size_t>(i / samples)] += work[static_cast<std::size_t>(dealt.sample(i))];
  dealt.micro_batch_at = fast_places(run, std::move(sums));
  return dealt;
}

}  // namespace chimera

#include "train/setup/rerouted_job.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <tuple>
#include <utility>

#include "check/check_schedule.h"
#include "core/clock.h"
#include "core/console.h"
#include "core/files.h"
#include "core/reject.h"
#include "engine/canonical.h"
#include "engine/rerouted_run.h"
#include "engine/sharded_optimizer.h"
#include "launch/local/recovery.h"
#include "plan/machine.h"
#include "plan/worker_memory.h"
#include "schedule/schedule_json.h"
#include "train/setup/device.h"
#include "train/setup/prepare_job.h"

// The job of a run that has lost ranks without replacement. rerouted_job() gives the lost ranks' micro-batches to other
// holders of their stages; balanced() then looks for copies of stages on further ranks that would make steps faster and
// fit into memory; spare_patience() tests at the start whether the job could lose any one rank at all.

namespace chimera {
namespace {

/// Returns the bytes that a rank may use: --memory or, on a GPU, the GPU's memory without the margin. Returns infinity
/// if neither limits the rank.
double memory_of_rank(const TrainOptions& options, std::int64_t ranks) {
  if (options.memory.gib > 0) return options.memory.gib * kGiB;
  if (!uses_gpu(options)) return std::numeric_limits<double>::infinity();
  const auto memory = static_cast<double>(accelerator().traits(options.device.gpu.value_or(0)).memory_bytes);
  return memory - reserved_of(options, ranks, memory).margin;
}

}  // namespace

std::vector<RankGroups> JobShape::shards() const {
  const bool is_rerouted = has_second_shards && !launched_ranks.empty();
  std::vector<RankGroups> groups;
  // A rerouted job keeps the division of the launch, so that no shard has to move: of the launched holders of a shard,
  // those that run are left, under their new numbers.
  for (const std::vector<RankId>& group : is_rerouted ? launched_groups : run.rank_groups()) {
    RankGroups& all = groups.emplace_back(shard_holders(group, has_second_shards));
    for (std::vector<RankId>& holders : all) {
      if (!is_rerouted) continue;
      std::vector<RankId> running;
      for (const RankId holder : holders) {
        const auto rank = std::ranges::find(launched_ranks, holder) - launched_ranks.begin();
        if (rank < std::ssize(launched_ranks)) running.emplace_back(rank);
      }
      holders = std::move(running);
    }
  }
  return groups;
}

Job rerouted_job(const Job& launched, const RunChange& change) {
  Job job = launched;
  const std::int64_t block_size = block_size_of(launched);
  job.run = rerouted_run(launched.run, change, block_size);
  job.launched_ranks = remaining_ranks(launched.run, change.lost);
  job.lost_ranks = std::ssize(change.lost);
  job.launched_groups = launched.run.rank_groups();
  job.factors = change.factors;
  job.delays = change.delays;
  if (job.canonical)
    job.canonical = canonical_reduction(job.run, job.run.micro_batches() / block_size, "--reduction-blocks");
  lower_programs(job);
  return job;
}

bool fits_memory(const JobShape& job, const TrainOptions& options) {
  return std::ranges::max(peaks_by_order(job.run.schedule, bytes_of_stages(job, options), job.stages.recompute,
                                         job.stages.offload)) <= memory_of_rank(options, job.num_ranks());
}

void save_order(const std::string& folder, const RunChange& change) {
  const std::string path = folder + "/" + kOrderName;
  if (change.schedule) return write_whole(path, to_json(*change.schedule));
  std::error_code absent;
  std::filesystem::remove(path, absent);
}

Job in_chosen_order(Job job) {
  const std::string path = (std::filesystem::path(job.options.resume.from).parent_path() / kOrderName).string();
  if (job.first_step == 0 || !std::filesystem::exists(path)) return job;
  const RunShape& run = job.run;
  Schedule order;
  try {
    order = schedule_from_json(read_whole(path), path);
    if (const auto violations = check(order); !violations.empty()) reject("{}: {}", path, violations.front().message);
  } catch (const ConfigError& error) {
    reject("--resume: {}; the file has the order of ops that the run had chosen; without it, the run goes on with {}",
           error.what(), run.schedule.name);
  }
  const auto layout_of = [](const Schedule& schedule, std::int64_t groups) {
    return std::tuple(schedule.name, schedule.stages, groups * schedule.micro_batches, schedule.slices,
                      schedule.micro_batch_scale, groups * std::ssize(schedule.workers), schedule.updates.has_value());
  };
  bool fits = layout_of(order, 1) == layout_of(run.schedule, run.ranks.data_parallel) && job.tensor_parallel == 1;
  job.order = std::make_shared<const Schedule>(std::move(order));
  try {
    if (fits) {
      const Job followed = rerouted_job(job, {.schedule = job.order});
      fits = followed.run.rank_groups() == run.rank_groups() && fits_memory(followed, followed.options);
    }
  } catch (const Error&) {  // For example other blocks of --reduction canonical
    fits = false;
  }
  if (job.options.output.reports) {
    messages().write(fits ? fmt::format("chimera: --resume: begins with the order of ops in {}\n", path)
                          : fmt::format("chimera: --resume: {} is of another layout, so the run begins with {}\n", path,
                                        run.schedule.name));
  }
  if (!fits) job.order.reset();
  return fits && !job.options.recovery.outlives_ranks() ? rerouted_job(job, {.schedule = job.order}) : job;
}

std::vector<GroupHolder> extra_copies(const JobShape& job) {
  std::vector<GroupHolder> copies;
  const RankGroups groups = job.run.rank_groups();
  for (std::size_t g = 0; g < job.launched_groups.size(); ++g) {
    for (const RankId rank : groups[g]) {
      // Whoever holds a stage that it did not hold at the launch has an extra copy.
      if (std::ranges::binary_search(job.launched_groups[g], job.launched_rank(rank))) continue;
      copies.push_back({job.launched_rank(rank), ParameterGroupId(static_cast<std::int64_t>(g))});
    }
  }
  return copies;
}

RunChange balanced(const Job& launched, const RunChange& change) {
  // Shards stay with the ranks that the launch gave them to.
  if (launched.options.memory.shard_optimizer) return change;
  const RankLayout& ranks = launched.run.ranks;
  const StageModel bytes = bytes_of_stages(launched, launched.options);
  const std::vector<double> peaks =
      peaks_by_order(launched.run.schedule, bytes, launched.stages.recompute, launched.stages.offload);
  const double memory = memory_of_rank(launched.options, launched.num_ranks());
  const auto last = ParameterGroupId(launched.run.schedule.stages - 1);
  std::vector<std::int64_t> lost_copies;  // [group]
  for (const std::vector<RankId>& holders : launched.run.rank_groups()) {
    lost_copies.push_back(std::ranges::count_if(
        holders, [&](RankId rank) { return std::ranges::find(change.lost, rank) != change.lost.end(); }));
  }
  RunChange result = change;
  // A group needs no more extra copies than it has lost. Copies beyond that are left over from ranks that are back.
  std::vector<std::int64_t> spare = lost_copies;
  std::erase_if(result.extra_copies, [&](const GroupHolder& copy) { return --spare[copy.group.index()] < 0; });
  if (change.lost.empty()) return result;
  const auto fits = [&](const std::vector<GroupHolder>& copies) {
    std::vector<double> used(static_cast<std::size_t>(ranks.num_ranks()));
    std::vector<std::int64_t> left = lost_copies;
    for (const auto* some : {&std::as_const(result.extra_copies), &copies}) {
      for (const auto& [rank, group] : *some) {
        if (--left[group.index()] < 0) return false;
        // Both ends share the tied matrix, whose group would change with the copy.
        if (launched.model.tied && (group == ParameterGroupId(0) || group == last)) return false;
        const StageMemory& stage = bytes.costs.memory[group.index()];
        used[rank.index()] += stage.weights + stage.gradients + stage.optimizer;
        if (used[rank.index()] + peaks[ranks.place(rank).worker.index()] > memory) return false;
      }
    }
    return result.extra_copies.size() + copies.size() <= kMaxExtraCopies;
  };
  const auto copies = balancing_copies(launched.run, result, block_size_of(launched), fits);
  const RunChange without_copies = result;
  result.extra_copies.insert(result.extra_copies.end(), copies.begin(), copies.end());
  try {
    // More groups need more communicators, which may not fit on the GPU any more. Then training goes on without copies.
    const Job rerouted = rerouted_job(launched, result);
    static_cast<void>(gpu_resources(rerouted, rerouted.options));  // For its errors
    return result;
  } catch (const ConfigError&) {
    return without_copies;
  }
}

std::optional<std::chrono::milliseconds> spare_patience(const Job& job) {
  if (job.tensor_parallel > 1) return std::nullopt;  // Not supported yet
  const bool must_reroute = job.options.recovery.recover == Recover::Reroute;
  // One data-parallel group is enough, because all are alike.
  for (WorkerId worker(0); worker.value() < job.run.ranks.workers; worker = WorkerId(worker.value() + 1)) {
    const RankId lost = job.run.ranks.rank({GroupId(0), worker});
    try {
      const Job rerouted = rerouted_job(job, {.lost = {lost}});
      static_cast<void>(gpu_resources(rerouted, rerouted.options));  // For its errors
    } catch (const Error& error) {
      if (must_reroute) reject("--recover reroute: without rank {}, {}", lost.value(), error.what());
      return std::nullopt;
    }
  }
  if (must_reroute) return std::chrono::milliseconds(0);
  // 0 would mean that no replacement starts.
  return std::max(to_milliseconds(job.options.recovery.spare_seconds), std::chrono::milliseconds(1));
}

}  // namespace chimera

#include "validation/measure_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/cgroup.h"
#include "measuring/step_contest.h"
#include "plan/cluster_profile.h"
#include "plan/machine.h"
#include "profile/profiler.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera {
namespace {

constexpr std::int64_t kManySteps = 1'000'000;  // of the learning rate schedule

TrainOptions options_of(const GridRun& run, const std::string& data) {
  TrainOptions options;
  options.model.name = run.model;
  options.data.training = data;
  options.model.overrides = overrides_of(run);
  options.data.sequence = run.sequence;
  options.parallel.data_parallel = run.data_parallel;
  options.parallel.tensor_parallel = run.tensor_parallel;
  options.schedule.name = run.schedule;
  options.schedule.shape = {run.stages, run.micro_batches, 2};
  options.data.micro_batch_size = run.micro_batch_size;
  options.schedule.partition = {PartitionRule::Even};  // as predicted
  options.memory.recompute = {run.recomputes ? StageRule::Full : StageRule::None};
  options.device.transport = run.transport;
  options.device.threads = 1;
  options.updates.steps = kManySteps;
  return options;
}

std::vector<ContestRun> all_options(const GridMeasurement& grid) {
  std::vector<ContestRun> all;
  for (const GridRun& run : grid.runs) all.emplace_back(options_of(run, grid.data), !run.sockets);
  return all;
}

bool any_on_sockets(const GridMeasurement& grid) {
  return std::ranges::any_of(grid.runs, [](const GridRun& run) { return run.sockets; });
}

std::vector<ProfiledModel> profiled_models(const GridMeasurement& grid) {
  std::vector<ProfiledModel> models;
  for (const GridRun& run : grid.runs) {
    const ProfiledModel own{model_of(run), run.sequence, {run.micro_batch_size}};
    const auto known = std::ranges::find_if(
        models, [&](const ProfiledModel& other) { return other.model == own.model && other.sequence == own.sequence; });
    if (known == models.end()) {
      models.push_back(own);
    } else if (std::ranges::count(known->micro_batch_sizes, run.micro_batch_size) == 0) {
      known->micro_batch_sizes.push_back(run.micro_batch_size);
      std::ranges::sort(known->micro_batch_sizes);
    }
  }
  return models;
}

/// Only two kinds, because the gauge runs around every step.
std::vector<GaugedBlocks> gauged_blocks(const GridMeasurement& grid) {
  constexpr std::size_t kMax = 2;
  std::vector<GaugedBlocks> blocks;
  for (const ProfiledModel& each : profiled_models(grid)) {
    if (blocks.size() < kMax) blocks.push_back({each.model.name, each.micro_batch_sizes.front(), each.sequence});
  }
  return blocks;
}

ProfileOptions profile_options(const GridMeasurement& grid) {
  ProfileOptions options;
  options.models.clear();
  const auto is_split = [](const GridRun& run) { return run.tensor_parallel > 1; };
  if (std::ranges::none_of(grid.runs, is_split)) options.tensor_parallel = {};
  options.others = profiled_models(grid);
  options.seconds = grid.profile_seconds;
  return options;
}

void unite(std::vector<MachineProfile>& machines, double gauge, const SpeedGauge& speed) {
  if (machines.size() < 2) return;
  const MachineProfile machine = merge_machines(machines);
  machines = {on_slower_processor(machine, gauge / speed.seconds_on(machine))};
}

}  // namespace

int grid_ranks(const GridMeasurement& grid) {
  const int profiling = profile_ranks(profile_options(grid), available_cores()).started;
  return std::max(profiling, StepContest::ranks_for(all_options(grid), /*as_threads=*/false));
}

GridTimes measure_grid(const GridMeasurement& grid, Transport& transport, int rank, int world_size,
                       const std::function<void(const std::string&)>& say) {
  const ProfileOptions profile = profile_options(grid);
  GridTimes times;
  std::unique_ptr<Transport> sockets;
  if (grid.profiles && any_on_sockets(grid)) {
    sockets = connect_gloo({.rank = rank,
                            .world_size = world_size,
                            .rendezvous = file_rendezvous(grid.folder + "/sockets"),
                            .groups = profile_groups(),
                            .share_memory = false});
  }
  const auto take_profile = [&] {
    if (!grid.profiles) return;
    times.machines.push_back(measure_machine(profile, transport, rank, [](const std::string&) {}).machine);
    if (!sockets) return;
    times.on_sockets.push_back(remeasure_links(*sockets, profile, rank, times.machines.back()));
  };
  Lockstep ranks(transport, rank, profile_ranks(profile, available_cores()).computing);
  SpeedGauge gauge(ranks, gauged_blocks(grid));
  StepContest contest(ranks, world_size, gauge, all_options(grid), grid.folder + "/grid");
  say(fmt::format("{} runs: warming up\n", grid.runs.size()));
  contest.round();
  contest.forget();
  take_profile();
  for (std::int64_t round = 0; round < grid.rounds; ++round) {
    contest.round();
    take_profile();
    say(fmt::format("round {} of {}\n", round + 1, grid.rounds));
  }
  times.seconds = at_median_speed(contest.times());
  for (auto* machines : {&times.machines, &times.on_sockets}) unite(*machines, median_gauge(contest.times()), gauge);
  return times;
}

}  // namespace chimera

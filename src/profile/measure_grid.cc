#include "profile/measure_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/cores.h"
#include "plan/merge_machines.h"
#include "profile/profiler.h"
#include "profile/step_contest.h"

namespace chimera {
namespace {

constexpr std::int64_t kManySteps = 1'000'000;  // of the learning rate's schedule

TrainOptions options_of(const GridRun& run, const std::string& data) {
  TrainOptions options;
  options.model = run.model;
  options.data = data;
  options.schedule = run.schedule;
  options.shape = {run.stages, run.micro_batches, 2};
  options.micro_batch_size = run.micro_batch_size;
  options.recompute = {run.recomputes ? RecomputeRule::Full : RecomputeRule::None};
  options.transport = run.transport;
  options.threads = 1;
  options.steps = kManySteps;
  return options;
}

std::vector<TrainOptions> all_options(const GridMeasurement& grid) {
  std::vector<TrainOptions> all;
  for (const GridRun& run : grid.runs) all.push_back(options_of(run, grid.data));
  return all;
}

std::vector<GaugedBlocks> gauged_blocks(const GridMeasurement& grid) {
  std::map<std::string, std::int64_t> models;
  for (const GridRun& run : grid.runs) models[run.model] = run.micro_batch_size;
  std::vector<GaugedBlocks> blocks;
  for (const auto& [model, size] : models) blocks.push_back({model, size});
  return blocks;
}

/// Layers and sizes that the runs have, and nothing else.
ProfileOptions profile_options(const GridMeasurement& grid) {
  std::set<std::string> models;
  std::set<std::int64_t> sizes;
  for (const GridRun& run : grid.runs) {
    models.insert(run.model);
    sizes.insert(run.micro_batch_size);
  }
  ProfileOptions options;
  options.models.assign(models.begin(), models.end());
  options.micro_batch_sizes.assign(sizes.begin(), sizes.end());
  options.seconds = grid.profile_seconds;
  return options;
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
  const auto take_profile = [&] {
    if (!grid.profiles) return;
    times.machines.push_back(measure_machine(profile, transport, rank, [](const std::string&) {}).machine);
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
  if (times.machines.size() > 1) {
    const MachineProfile machine = merge_machines(times.machines);
    times.machines = {with_slower_layers(machine, median_gauge(contest.times()) / gauge.seconds_on(machine))};
  }
  return times;
}

}  // namespace chimera

#include "bench_validation.h"

#include <ATen/Parallel.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/machine_line.h"
#include "bench/random_letters.h"
#include "bench/training_run.h"
#include "core/console.h"
#include "core/error.h"
#include "core/freed_memory.h"
#include "launch/local/launcher.h"
#include "options.h"
#include "profile/measure_grid.h"
#include "profile/profiler.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera::apps {
namespace {

void say(const std::string& words) { messages().write(words); }

GridMeasurement measurement(const ValidationFlags& flags, const std::string& folder) {
  return {.runs = chosen_runs(flags.only),
          .data = folder + "/text.txt",
          .folder = folder,
          .rounds = flags.rounds,
          .profiles = flags.machine.empty()};
}

std::string times_file(const std::string& folder) { return folder + "/times.json"; }

/// What rank 0 measured, for the launcher.
void write_times(const std::string& folder, const GridTimes& times) {
  const auto texts = [](const std::vector<MachineProfile>& machines) {
    nlohmann::json list = nlohmann::json::array();
    for (const MachineProfile& machine : machines) list.push_back(to_json(machine));
    return list;
  };
  std::ofstream(times_file(folder)) << nlohmann::json{
      {"seconds", times.seconds}, {"machines", texts(times.machines)}, {"on_sockets", texts(times.on_sockets)}};
}

GridTimes read_times(const std::string& folder) {
  const auto json = nlohmann::json::parse(std::ifstream(times_file(folder)));
  const auto profiles = [&](const char* name) {
    std::vector<MachineProfile> machines;
    for (const auto& machine : json.at(name))
      machines.push_back(machine_from_json(machine.get<std::string>(), "the measured profile"));
    return machines;
  };
  return {json.at("seconds").get<std::vector<std::vector<double>>>(), profiles("machines"), profiles("on_sockets")};
}

int measure_as_rank(const ValidationFlags& flags, const RankEnvironment& rank) {
  keep_freed_memory();
  at::set_num_interop_threads(1);
  at::set_num_threads(1);
  const auto transport = connect_gloo(
      {.rank = rank.rank, .world_size = rank.world_size, .meeting = rank.meeting, .groups = profile_groups()});
  const bool speaks = rank.rank == 0;
  const auto progress = [&](const std::string& words) {
    if (speaks) say(words);
  };
  const GridTimes times =
      measure_grid(measurement(flags, flags.folder), *transport, rank.rank, rank.world_size, progress);
  if (speaks) write_times(flags.folder, times);
  return static_cast<int>(ExitCode::Success);
}

}  // namespace

int run_validation(const ValidationFlags& flags, const Invocation& invocation) {
  if (invocation.rank) return measure_as_rank(flags, *invocation.rank);
  const TemporaryFolder folder;
  const GridMeasurement grid = measurement(flags, folder.file(""));
  write_random_letters(grid.data);
  const auto measure = [&](const std::vector<GridRun>&) {
    std::vector<std::string> arguments = invocation.arguments;
    arguments.insert(arguments.end(), {"--grid-folder", grid.folder});
    if (launch({.ranks = grid_ranks(grid), .arguments = arguments, .entry = invocation.entry}) != 0)
      throw Error("the grid could not be measured");
    return read_times(grid.folder);
  };
  const ValidationOptions options{own_executable(), flags.machine, grid.data, flags.only};
  const auto runs = run_validation(options, measure, predict_run, say);
  write_output(flags.output,
               flags.format == Format::Json ? to_json(runs, machine_line()) : to_text(runs, machine_line()));
  return static_cast<int>(ExitCode::Success);
}

}  // namespace chimera::apps

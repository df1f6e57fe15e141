// Compares predictions of the planner with a fixed grid of training runs (docs/planner.md, Accuracy).

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/machine_line.h"
#include "bench/random_letters.h"
#include "core/cgroup.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/resident_memory.h"
#include "launch/local/launcher.h"
#include "launch/local/rank.h"
#include "profile/profiler.h"
#include "transport/gloo/gloo_transport.h"
#include "validation/measure_grid.h"
#include "validation/validation.h"

namespace chimera::benchmarks {
namespace {

struct Options {
  std::string program = std::filesystem::path(own_executable()).parent_path().parent_path() / "chimera";
  std::string machine;  // profile; empty: measured, alternating with the runs
  std::string only;     // only runs whose describe() contains this
  std::string again;    // earlier results to predict again; empty: measure
  std::int64_t rounds = 8;
  bool json = false;
  std::string output;  // empty: standard output
  std::string folder;  // created by the launcher for text and rendezvous of the ranks
};

void say(const std::string& words) { fmt::print(stderr, "{}", words); }

GridMeasurement measurement(const Options& options, const std::string& folder) {
  return {.runs = chosen_runs(options.only),
          .data = folder + "/text.txt",
          .folder = folder,
          .rounds = options.rounds,
          .profiles = options.machine.empty()};
}

std::string times_file(const std::string& folder) { return folder + "/times.json"; }

void write_times(const std::string& folder, const GridTimes& times) {
  const auto texts = [](const std::vector<MachineProfile>& machines) {
    nlohmann::json list = nlohmann::json::array();
    for (const MachineProfile& machine : machines) list.push_back(to_json(machine));
    return list;
  };
  const nlohmann::json json = {
      {"seconds", times.seconds}, {"machines", texts(times.machines)}, {"on_sockets", texts(times.on_sockets)}};
  write_whole(times_file(folder), json_text(json));
}

GridTimes read_times(const std::string& folder) {
  const auto json = nlohmann::json::parse(std::ifstream(times_file(folder)));
  const auto profiles = [&](const char* name) {
    std::vector<MachineProfile> machines;
    for (const auto& machine : json.at(name))
      machines.push_back(machine_from_json(machine.get<std::string>(), "the measured profile"));
    return machines;
  };
  return {.seconds = json.at("seconds").get<std::vector<std::vector<double>>>(),
          .machines = profiles("machines"),
          .on_sockets = profiles("on_sockets")};
}

void measure_as_rank(const Options& options, const RankEnvironment& rank) {
  keep_freed_memory();
  at::set_num_interop_threads(1);
  at::set_num_threads(1);
  const auto transport = connect_gloo({.rank = rank.rank,
                                       .world_size = rank.world_size,
                                       .rendezvous = rank.rendezvous,
                                       .groups = profile_groups(ProfileOptions{}, available_cores())});
  const auto progress = [&](const std::string& words) {
    if (rank.rank == 0) say(words);
  };
  const GridTimes times =
      measure_grid(measurement(options, options.folder), *transport, rank.rank, rank.world_size, progress);
  if (rank.rank == 0) write_times(options.folder, times);
}

void write_results(const Options& options, const Validation& validation) {
  const std::string text = options.json ? to_json(validation) : to_text(validation);
  if (options.output.empty()) {
    fmt::print("{}", text);
  } else {
    write_whole(options.output, text);
  }
}

void validate(const Options& options) {
  if (!options.again.empty())
    return write_results(options, predict_again(read_whole(options.again), options.again, predict_run));
  const TemporaryFolder folder;
  const GridMeasurement grid = measurement(options, folder.file(""));
  write_random_letters(grid.data);
  const auto measure = [&](const std::vector<GridRun>&) {
    const std::vector<std::string> arguments = {"--machine",  options.machine, "--only",
                                                options.only, "--rounds",      std::to_string(options.rounds),
                                                "--folder",   grid.folder};
    if (launch({.ranks = grid_ranks(grid), .arguments = arguments}) != 0) throw Error("the grid could not be measured");
    return read_times(grid.folder);
  };
  Validation validation =
      run_validation({.program = options.program, .machine = options.machine, .data = grid.data, .only = options.only},
                     measure, predict_run, say);
  validation.measured_on = machine_line("LibTorch " TORCH_VERSION);
  write_results(options, validation);
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  using namespace chimera;
  benchmarks::Options options;
  CLI::App app(
      "Trains a fixed set of runs (about 40 minutes) and compares step time and memory with the planner's predictions. "
      "`error` is predicted / measured - 1 in the median round; `spread` compares the medians of odd and even rounds.");
  app.add_option("--chimera", options.program, "the program to run")->capture_default_str();
  auto* machine = app.add_option("--machine", options.machine,
                                 "machine profile for the predictions (default: measured between the runs)");
  auto* only = app.add_option("--only", options.only, "train only runs whose names contain this");
  auto* rounds = app.add_option("--rounds", options.rounds, "turns of each run; odd rounds are compared with even ones")
                     ->capture_default_str()
                     ->check(CLI::Range(2, 1000));
  app.add_option("--again", options.again, "predict the runs of this file, which --json wrote, again; train nothing")
      ->excludes(machine)
      ->excludes(only)
      ->excludes(rounds);
  app.add_flag("--json", options.json, "write JSON, with the measured profiles");
  app.add_option("--output", options.output, "write the results to this file");
  app.add_option("--folder", options.folder)->group("");  // passed to ranks
  CLI11_PARSE(app, argc, argv);
  try {
    if (const auto rank = rank_environment()) {
      benchmarks::measure_as_rank(options, *rank);
    } else {
      benchmarks::validate(options);
    }
    return 0;
  } catch (const std::exception& error) {
    report_failure({.message = error.what()});
    fmt::print(stderr, "validate: {}\n", error.what());
    return 1;
  }
}

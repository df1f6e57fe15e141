// Fits a machine profile to measured step times (docs/machine_profile.md).

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "regression/fit.h"

namespace chimera::benchmarks {
namespace {

struct Options {
  std::string machine;
  std::string runs;
  std::vector<std::string> scalars = {"layers", "sent", "summed"};
  std::string output;  // empty: no file
};

void fit(const Options& options) {
  std::vector<FitScalar> scalars;
  for (const std::string& name : options.scalars) {
    const auto scalar = parse_named<FitScalar>("--scalars", name);
    if (std::ranges::count(scalars, scalar) > 0) throw ConfigError(fmt::format("--scalars names {} twice", name));
    scalars.push_back(scalar);
  }
  const MachineProfile machine = read_machine(options.machine);
  const std::vector<MeasuredRun> runs = measured_runs(read_whole(options.runs), options.runs);
  const MachineFit fitted = fit_machine(machine, runs, scalars);
  if (!options.output.empty()) write_whole(options.output, to_json(fitted.machine));
  fmt::print("{}", to_text(fitted, runs));
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  chimera::benchmarks::Options options;
  CLI::App app("Fits a machine profile to the measured step times of the runs in a TOML file, and prints the errors");
  app.add_option("--machine", options.machine, "the profile to change")->required();
  app.add_option("--runs", options.runs, "TOML file of measured runs")->required();
  app.add_option("--scalars", options.scalars,
                 "what the fit changes: layers, sent, summed, latency, launch, ranks, overlap")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--output", options.output, "write the fitted profile to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    chimera::benchmarks::fit(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "fit: {}\n", error.what());
    return 1;
  }
}

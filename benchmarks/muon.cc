// Time of an update with Muon if the two copies of each stage share its iterations, and if each copy runs all of them.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bench/machine_line.h"
#include "bench/random_letters.h"
#include "bench/statistics.h"
#include "core/files.h"
#include "launch/local/launcher.h"
#include "launch/local/rank.h"
#include "train/loop/trainer.h"
#include "train/setup/prepare_job.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera::benchmarks {
namespace {

struct Options {
  std::string data;  // passed to the ranks
  std::string dtype = "float32";
  std::int64_t layers = 8;
  std::int64_t hidden = 256;
  int rounds = 15;
};

TrainOptions options_of(const Options& options) {
  TrainOptions train;
  train.model.overrides = {.layers = options.layers, .hidden = options.hidden, .heads = options.hidden / 64};
  train.data.training = options.data;
  train.schedule.shape = {2, 2};
  train.device.threads = 1;
  train.updates.optimizer.kind = OptimizerKind::Muon;
  train.updates.optimizer.muon.iterations = parse_named<DataType>("--dtype", options.dtype);
  return train;
}

/// Runs this process as one rank over Gloo; rank 0 prints.
void measure_rank(const Options& options, const RankEnvironment& rank) {
  at::set_num_interop_threads(1);
  at::set_num_threads(1);
  const Job job = prepare_job(options_of(options));
  const auto transport = connect_gloo({.rank = rank.rank,
                                       .world_size = rank.world_size,
                                       .rendezvous = rank.rendezvous,
                                       .groups = job.run.rank_groups()});
  Trainer trainer(job, RankId(rank.rank), *transport);
  static_cast<void>(trainer.train_step(0));  // Gradients
  Optimizer& optimizer = trainer.model().optimizer();
  const auto seconds_of = [&](auto&& update) {
    std::vector<double> nothing(1, 0);
    transport->all_sum(nothing);
    const auto start = std::chrono::steady_clock::now();
    update();
    transport->all_sum(nothing);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  constexpr int kWarmUp = 2;
  std::vector<double> shared;
  std::vector<double> unshared;
  std::vector<double> ratios;
  for (int round = 0; round < kWarmUp + options.rounds; ++round) {
    const double together = seconds_of([&] { optimizer.step(1e-3, 0.5); });
    const double alone = seconds_of([&] { optimizer.step_alone(1e-3, 0.5); });
    if (round < kWarmUp) continue;
    shared.push_back(together);
    unshared.push_back(alone);
    ratios.push_back(together / alone);
  }
  if (rank.rank != 0) return;
  const Spread ratio = spread_of(ratios);
  fmt::print("iterations in {}: shared {:.2f} ms, unshared {:.2f} ms, ratio {:.3f} ({:.3f} .. {:.3f})\n", options.dtype,
             1e3 * spread_of(shared).median, 1e3 * spread_of(unshared).median, ratio.median, ratio.low, ratio.high);
}

int run_all(Options options) {
  const TemporaryFolder folder;
  write_random_letters(options.data = folder.file("text"));
  fmt::print("An update with Muon, chimera with D = 2 on processes over Gloo, one thread each\n{}\n",
             machine_line("LibTorch " TORCH_VERSION));
  fmt::print("{} layers of {}, float32; {} rounds of both, taking turns; medians and quartiles\n", options.layers,
             options.hidden, options.rounds);
  std::fflush(stdout);
  int failed = 0;
  for (const char* dtype : {"float32", "bfloat16"}) {
    failed += launch({.ranks = 2,
                      .arguments = {"--dtype", dtype, "--rounds", std::to_string(options.rounds), "--layers",
                                    std::to_string(options.layers), "--hidden", std::to_string(options.hidden),
                                    "--data", options.data}}) != 0;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  using namespace chimera;
  benchmarks::Options options;
  CLI::App app("Time of an update with Muon, whose iterations two copies of a stage share or not");
  app.add_option("--rounds", options.rounds, "updates of each")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--layers", options.layers)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--hidden", options.hidden, "a multiple of 64")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--dtype", options.dtype)->group("");  // internal options for ranks
  app.add_option("--data", options.data)->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    const auto rank = rank_environment();
    if (!rank) return benchmarks::run_all(options);
    benchmarks::measure_rank(options, *rank);
    return 0;
  } catch (const std::exception& error) {
    report_failure({.message = error.what()});
    fmt::print(stderr, "muon: {}\n", error.what());
    return 1;
  }
}

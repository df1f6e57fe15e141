// Time and memory effects of flags of `chimera train`: --shard-optimizer, --reduction canonical and --verify-messages.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "bench/contest.h"
#include "bench/machine_line.h"
#include "bench/random_letters.h"
#include "bench/statistics.h"
#include "core/error.h"
#include "core/files.h"
#include "launch/local/launcher.h"
#include "launch/local/rank.h"
#include "train/loop/trainer.h"
#include "train/setup/prepare_job.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/threads/thread_transport.h"

namespace chimera::benchmarks {
namespace {

constexpr std::int64_t kMicroBatches = 8;

struct Options {
  std::string data;  // passed to the ranks
  std::int64_t stages = 2;
  int rounds = 15;
  std::string report;  // passed to a process that trains alone: the file for its CPU time
  bool fixes_products = false;
};

/// A combination of flags; the first is the baseline.
struct Variant {
  std::string name;
  bool shard_optimizer = false;
  ReductionOrder reduction = ReductionOrder::Natural;
  bool verify_messages = false;
};

std::vector<Variant> variants() {
  return {{"natural"},
          {"--shard-optimizer", true},
          {"--reduction canonical", false, ReductionOrder::Canonical},
          {"--verify-messages", false, ReductionOrder::Natural, true}};
}

TrainOptions options_of(const Variant& variant, const Options& options) {
  TrainOptions train;
  train.model.overrides = {.layers = 8, .hidden = 256, .heads = 4};
  train.data.training = options.data;
  train.schedule.shape = {options.stages, kMicroBatches};
  train.device.threads = 1;
  train.memory.shard_optimizer = variant.shard_optimizer;
  train.numbers.reduction = variant.reduction;
  train.recovery.verify_messages = variant.verify_messages;
  return train;
}

/// One worker's state for each variant; all variants use the same transport in turn.
struct Contender {
  Variant variant;
  std::unique_ptr<Job> job;
  std::unique_ptr<Trainer> trainer;
  std::vector<double> seconds = {};  // step time of each round, until all workers are done
};

std::vector<Contender> contenders(const Options& options, RankId rank, Transport& transport) {
  std::vector<Contender> all;
  for (const Variant& variant : variants()) {
    auto job = std::make_unique<Job>(prepare_job(options_of(variant, options)));
    auto trainer = std::make_unique<Trainer>(*job, rank, transport);
    all.push_back({variant, std::move(job), std::move(trainer)});
  }
  return all;
}

void measure(std::vector<Contender>& all, Transport& transport, int rounds) {
  const auto meet = [&] {
    std::vector<double> nothing(1, 0);
    transport.all_sum(nothing);
  };
  constexpr int kWarmUp = 2;
  for (int round = 0; round < kWarmUp + rounds; ++round) {
    std::rotate(all.begin(), all.begin() + 1, all.end());  // varies the order of the variants
    for (Contender& each : all) {
      meet();
      const auto start = std::chrono::steady_clock::now();
      static_cast<void>(each.trainer->train_step(round));
      meet();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      if (round >= kWarmUp) each.seconds.push_back(taken.count());
    }
  }
  std::ranges::sort(all, {}, [](const Contender& each) { return each.variant.name != variants()[0].name; });
}

Spread ratio(const Contender& one, const Contender& base) {
  std::vector<double> ratios;
  for (std::size_t r = 0; r < one.seconds.size(); ++r) ratios.push_back(one.seconds[r] / base.seconds[r]);
  return spread_of(ratios);
}

/// The maximum over the workers.
double largest(double own, int rank, int world_size, Transport& transport) {
  std::vector<double> all(static_cast<std::size_t>(world_size), 0);
  all[static_cast<std::size_t>(rank)] = own;
  transport.all_sum(all);
  return *std::ranges::max_element(all);
}

void print_row(const Options& options, const Contender& one, const Contender& base, double state_bytes) {
  const Spread times = ratio(one, base);
  fmt::print("{:>2}  {:<24} {:>10.1f} {:>12.3f} {:>8.3f} {:>9.3f} .. {:<6.3f}\n", options.stages, one.variant.name,
             state_bytes / (1 << 20), spread_of(one.seconds).median, times.median, times.low, times.high);
  std::fflush(stdout);
}

/// Runs this process as one rank over Gloo; rank 0 prints.
void measure_rank(const Options& options, const RankEnvironment& rank) {
  ::setenv("MKL_CBWR", "AUTO", /*overwrite=*/0);  // as canonical runs do; its cost is measured separately
  at::set_num_interop_threads(1);
  at::set_num_threads(1);
  const Job job = prepare_job(options_of(variants()[0], options));
  const auto transport = connect_gloo({.rank = rank.rank,
                                       .world_size = rank.world_size,
                                       .rendezvous = rank.rendezvous,
                                       .groups = job.run.rank_groups()});
  auto all = contenders(options, RankId(rank.rank), *transport);
  measure(all, *transport, options.rounds);
  for (const Contender& one : all) {
    double own = 0;
    for (const OptimizerTensor& tensor : one.trainer->model().optimizer().state())
      own += static_cast<double>(tensor.value.nbytes());
    const double bytes = largest(own, rank.rank, rank.world_size, *transport);
    if (rank.rank == 0) print_row(options, one, all.front(), bytes);
  }
}

/// CPU seconds of a step of the unpipelined model in this process.
double cpu_seconds_alone(const Options& options) {
  if (options.fixes_products) ::setenv("MKL_CBWR", "AUTO", /*overwrite=*/1);
  at::set_num_interop_threads(1);
  at::set_num_threads(1);
  TrainOptions train = options_of(variants()[0], options);
  train.schedule.name = "none";
  const Job job = prepare_job(train);
  ThreadHub hub(1, job.run.rank_groups());
  const auto transport = hub.transport(RankId(0));
  Trainer trainer(job, RankId(0), *transport);
  constexpr int kWarmUp = 1;
  constexpr int kSteps = 3;
  std::vector<double> seconds;
  for (int step = 0; step < kWarmUp + kSteps; ++step) {
    const Stopwatch watch;
    static_cast<void>(trainer.train_step(step));
    if (step >= kWarmUp) seconds.push_back(watch.elapsed().cpu_seconds);
  }
  return spread_of(seconds).median;
}

/// Cost of matrix products with results independent of memory alignment.
int measure_products(const Options& options, const TemporaryFolder& folder) {
  std::vector<double> ratios;
  for (int round = 0; round < std::max(options.rounds / 3, 1); ++round) {
    double seconds[2] = {};
    for (const int turn : {0, 1}) {
      const int fixed = (turn + round) % 2;
      const std::string report = folder.file("seconds");
      std::vector<std::string> arguments = {"--data", options.data, "--report", report};
      if (fixed == 1) arguments.emplace_back("--fix-products");
      if (const int code = launch({.ranks = 1, .arguments = arguments}); code != 0) return code;
      std::ifstream(report) >> seconds[fixed];
    }
    ratios.push_back(seconds[1] / seconds[0]);
  }
  const Spread times = spread_of(ratios);
  fmt::print("MKL_CBWR=AUTO: {:.3f} ({:.3f} .. {:.3f}) times the CPU time of an unpipelined step without\n",
             times.median, times.low, times.high);
  return 0;
}

int run_all(Options options) {
  const TemporaryFolder folder;
  write_random_letters(options.data = folder.file("text"));
  fmt::print("Steps with and without a flag, Chimera on processes over Gloo, one thread each\n{}\n",
             machine_line("LibTorch " TORCH_VERSION));
  fmt::print(
      "8 layers of 256, sequence 128, micro-batches of 4, N = {}, float32, AdamW; {} rounds of one step each, "
      "taking turns in the same processes\n",
      kMicroBatches, options.rounds);
  fmt::print("{:>2}  {:<24} {:>10} {:>12} {:>8} {:>19}\n", "D", "", "state MiB", "s a step", "times", "quartiles");
  std::fflush(stdout);
  int failed = 0;
  for (const int stages : {2, 4}) {
    failed += launch({.ranks = stages,
                      .arguments = {"--stages", std::to_string(stages), "--rounds", std::to_string(options.rounds),
                                    "--data", options.data}}) != 0;
  }
  failed += measure_products(options, folder);
  fmt::print("\n");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  using namespace chimera;
  benchmarks::Options options;
  CLI::App app("What flags of `chimera train` cost in time and save in memory");
  app.add_option("--rounds", options.rounds, "steps of each")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--stages", options.stages)->group("");  // internal options for ranks
  app.add_option("--data", options.data)->group("");
  app.add_option("--report", options.report)->group("");
  app.add_flag("--fix-products", options.fixes_products)->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    const auto rank = rank_environment();
    if (!rank) return benchmarks::run_all(options);
    if (options.report.empty()) {
      benchmarks::measure_rank(options, *rank);
    } else {
      std::ofstream(options.report) << benchmarks::cpu_seconds_alone(options);
    }
    return 0;
  } catch (const std::exception& error) {
    report_failure({.message = error.what()});
    fmt::print(stderr, "flags: {}\n", error.what());
    return 1;
  }
}

// Cost of --trace per training step.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>

#include "bench/machine_line.h"
#include "bench/statistics.h"
#include "core/clock.h"
#include "core/file_descriptor.h"
#include "launch/local/launcher.h"
#include "launch/local/rank.h"
#include "train/loop/trainer.h"
#include "train/setup/prepare_job.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera::benchmarks {
namespace {

constexpr int kStages = 2;
constexpr int kWarmUpSteps = 3;
constexpr int kPairs = 25;  // of a step with a trace and a step without
constexpr double kLimit = 0.01;

TrainOptions options_for(const std::string& data) {
  TrainOptions options;
  options.data.training = data;
  options.schedule.shape = {kStages, 8, 2};
  options.model.overrides = {.layers = 4};
  options.device.threads = 1;
  return options;
}

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Seconds of one step.
struct Cost {
  double wall = 0;
  double cpu = 0;  // of the process
};

Cost cost_of_step(Trainer& trainer, std::int64_t step) {
  const double wall = monotonic_seconds();
  const double cpu = cpu_seconds();
  static_cast<void>(trainer.train_step(step));
  return {monotonic_seconds() - wall, cpu_seconds() - cpu};
}

/// Seconds to record one instruction.
double cost_of_mark() {
  constexpr std::size_t kMarks = 100'000;
  Tracer tracer(kMarks, 1);
  tracer.begin_step(0);
  const double start = cpu_seconds();
  for (std::size_t i = 0; i < kMarks; ++i) tracer.mark();
  return (cpu_seconds() - start) / static_cast<double>(kMarks);
}

void print_ratio(const char* what, const std::vector<double>& on, const std::vector<double>& off) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < on.size(); ++i) ratios.push_back(100 * (on[i] / off[i] - 1));
  const Spread spread = spread_of(ratios);
  fmt::print("{:<10} {:>12.3f} {:>12.3f} {:>+9.2f} % {:>+8.2f} .. {:<+8.2f}\n", what, 1e3 * spread_of(on).median,
             1e3 * spread_of(off).median, spread.median, spread.low, spread.high);
}

/// Runs this process as one rank over Gloo; rank 0 prints its figures.
void measure_rank(const std::string& data, const RankEnvironment& rank) {
  at::set_num_threads(1);
  const Job job = prepare_job(options_for(data));
  const auto transport = connect_gloo({.rank = rank.rank,
                                       .world_size = rank.world_size,
                                       .rendezvous = rank.rendezvous,
                                       .groups = job.run.rank_groups()});
  Trainer trainer(job, RankId(rank.rank), *transport);
  std::int64_t step = 0;
  while (step < kWarmUpSteps) static_cast<void>(trainer.train_step(step++));
  std::vector<double> wall[2];
  std::vector<double> cpu[2];
  for (int pair = 0; pair < kPairs; ++pair) {
    for (const bool first : {true, false}) {
      const bool traced = first == (pair % 2 == 0);  // the traced step goes first in every other pair
      trainer.trace(traced);
      const Cost cost = cost_of_step(trainer, step++);
      wall[traced].push_back(cost.wall);
      cpu[traced].push_back(cost.cpu);
    }
  }
  if (rank.rank != 0) return;
  fmt::print("{:<10} {:>12} {:>12} {:>11} {:>20}\n", "rank 0", "traced, ms", "untraced, ms", "difference",
             "quartiles of pairs");
  print_ratio("step", wall[1], wall[0]);
  print_ratio("CPU time", cpu[1], cpu[0]);
  const auto marks = static_cast<double>(job.programs.training.workers.front().size() + 1);
  const double share = marks * cost_of_mark() / spread_of(wall[0]).median;
  fmt::print("{:.0f} notes of {:.0f} ns each a step: {:.4f} % of it; required: at most {:.0f} %: {}\n", marks,
             1e9 * cost_of_mark(), 100 * share, 100 * kLimit, share <= kLimit ? "met" : "NOT MET");
}

int run_all() {
  fmt::print("What --trace costs a step\n{}\n", machine_line("LibTorch " TORCH_VERSION));
  fmt::print("gpt2-mini of 4 layers, chimera, D = {}, N = 8, micro-batches of 4 x 128 tokens; {} pairs of steps, {}\n",
             kStages, kPairs, "traced and not, taking turns in one run");
  std::fflush(stdout);
  std::string path = (std::filesystem::temp_directory_path() / "chimera-tracing-XXXXXX").string();
  const FileDescriptor file(check_system(::mkstemp(path.data()), "make the file " + path));
  {
    std::ofstream text(path);
    for (int i = 0; i < 60'000; ++i) text << "word" << (i * i) % 101 << ' ';
  }
  const int result = launch({.ranks = kStages, .arguments = {path}});
  std::filesystem::remove(path);
  return result;
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  using namespace chimera;
  try {
    const auto rank = rank_environment();
    if (!rank) return benchmarks::run_all();
    if (argc == 2) benchmarks::measure_rank(argv[1], *rank);
    return 0;
  } catch (const std::exception& error) {
    report_failure({.message = error.what()});
    fmt::print(stderr, "tracing: {}\n", error.what());
    return 1;
  }
}

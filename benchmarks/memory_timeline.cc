// Bytes over time on every worker, measured in processes, compared with the simulator's memory timeline. The simulator
// uses measured sizes of stages, or those of model_config/footprint.h.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>

#include "bench/machine_line.h"
#include "core/file_descriptor.h"
#include "launch/local/launcher.h"
#include "launch/local/rank.h"
#include "measuring/run_memory.h"
#include "train/setup/prepare_job.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera::benchmarks {
namespace {

constexpr int kStages = 4;
constexpr double kMebibyte = 1024.0 * 1024.0;
constexpr double kLimit = 0.05;
constexpr const char* kDerived = "derived";

TrainOptions options_for(const std::string& data, const std::string& schedule, const std::string& recompute) {
  TrainOptions options;
  options.data.training = data;
  options.schedule.name = schedule;
  options.memory.recompute = parse_stages(kRecomputeFlag, recompute);
  options.schedule.shape = {kStages, 8, 2};
  options.device.threads = 1;
  options.updates.steps = 3;
  return options;
}

/// Runs this process as one rank over Gloo; rank 0 prints a row for each worker.
void measure_rank(const std::string& data, const std::string& schedule, const std::string& recompute,
                  const std::string& sizes, const RankEnvironment& rank) {
  at::set_num_threads(1);
  const Job job = prepare_job(options_for(data, schedule, recompute));
  const auto transport = connect_gloo({.rank = rank.rank,
                                       .world_size = rank.world_size,
                                       .rendezvous = rank.rendezvous,
                                       .groups = job.run.rank_groups()});
  const auto workers =
      compare_memory(job, RankId(rank.rank), *transport, sizes == kDerived ? Sizes::Derived : Sizes::Measured);
  if (rank.rank != 0) return;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const WorkerMemory& worker = workers[w];
    const double peaks = worker.measured_peak() / worker.simulated_peak() - 1;
    const bool met = worker.largest_deviation() <= kLimit && std::abs(peaks) <= kLimit;
    fmt::print(
        "{:<11} {:<9} {:<9} {:>6} {:>9.1f} {:>9.1f} {:>9.1f} {:>+7.2f} % {:>9.2f} % {:>6} {:>9.1f} {:>9.1f}   {}\n",
        schedule, recompute, sizes, w, worker.kept / kMebibyte, worker.measured_peak() / kMebibyte,
        worker.simulated_peak() / kMebibyte, 100 * peaks, 100 * worker.largest_deviation(), to_text(worker.worst().op),
        worker.worst().measured / kMebibyte, worker.worst().simulated / kMebibyte, met ? "met" : "NOT MET");
  }
}

int run_all() {
  fmt::print("Bytes of tensors over a step, measured and simulated, MiB\n{}\n",
             machine_line("LibTorch " TORCH_VERSION));
  fmt::print("gpt2-mini, adamw, D = {}, N = 8, micro-batches of 4 x 128 tokens, processes; required: within {:.0f} %\n",
             kStages, 100 * kLimit);
  fmt::print("{:<11} {:<9} {:<9} {:>6} {:>9} {:>9} {:>9} {:>9} {:>11} {:>26}\n", "schedule", "recompute", "sizes",
             "worker", "kept", "peak", "simulated", "", "at any op", "there: measured, simulated");
  std::fflush(stdout);
  std::string path = (std::filesystem::temp_directory_path() / "chimera-memory-XXXXXX").string();
  const FileDescriptor file(check_system(::mkstemp(path.data()), "make the file " + path));
  {
    std::ofstream text(path);
    for (int i = 0; i < 60'000; ++i) text << "word" << (i * i) % 101 << ' ';
  }
  int failed = 0;
  for (const char* schedule : {"1f1b", "gpipe", "chimera", "chimera-zb"}) {
    for (const char* recompute : {"none", "full"}) {
      for (const char* sizes : {"measured", kDerived})
        failed += launch({.ranks = kStages, .arguments = {path, schedule, recompute, sizes}}) != 0;
    }
  }
  std::filesystem::remove(path);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  using namespace chimera;
  try {
    const auto rank = rank_environment();
    if (!rank) return benchmarks::run_all();
    if (argc == 5) benchmarks::measure_rank(argv[1], argv[2], argv[3], argv[4], *rank);
    return 0;
  } catch (const std::exception& error) {
    report_failure({.message = error.what()});
    fmt::print(stderr, "memory_timeline: {}\n", error.what());
    return 1;
  }
}

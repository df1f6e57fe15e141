// CPU time that the executor and the transport add to the module calls of a step.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/version.h>

#include <cstdio>
#include <ctime>
#include <exception>
#include <functional>
#include <map>

#include "bench/machine_line.h"
#include "bench/statistics.h"
#include "generate/registry.h"
#include "launch/local/launcher.h"
#include "launch/local/rank.h"
#include "measuring/raw_gloo.h"
#include "passes/lower.h"
#include "profile/measure_overheads.h"
#include "runtime/executor.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/threads/rank_threads.h"

namespace chimera::benchmarks {
namespace {

constexpr std::int64_t kStages = 2;
const RankLayout kRanks{.workers = kStages};
constexpr std::int64_t kMicroBatches = 64;
constexpr std::int64_t kHidden = TrivialStage::kHidden;
constexpr int kWarmUpSteps = 50;
constexpr int kRepetitions = 31;
constexpr int kStepsOfRepetition = 20;
constexpr double kLimitOnThreads = 20;    // microseconds per op
constexpr double kLimitOnProcesses = 10;  // beyond the time of Gloo's own calls

double cpu_microseconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

struct Case {
  explicit Case(const std::string& name)
      : schedule(find_generator(name).generate({kStages, kMicroBatches})), program(lower(schedule)) {}
  Schedule schedule;
  Program program;
};

/// One worker: its stages, and its state to run them with and without the executor.
class Worker {
 public:
  Worker(const Case& with, WorkerId id, Transport& transport)
      : ops_(with.schedule.workers[id.index()]), instructions_(with.program.workers[id.index()]) {
    const WorkerGroups groups = stage_groups(with.schedule.placement);
    std::map<StageId, Stage*> borrowed;
    for (std::int64_t s = 0; s < kStages; ++s) {
      const auto& group = groups[static_cast<std::size_t>(s)];
      if (std::ranges::find(group, id) == group.end()) continue;
      stages_[StageId(s)] = std::make_unique<TrivialStage>(s == 0, s + 1 == kStages);
      borrowed[StageId(s)] = stages_[StageId(s)].get();
    }
    executor_ = std::make_unique<Executor>(id, borrowed, transport, TensorSpec{{1, 1, kHidden}, at::kFloat},
                                           ProgramShape{kMicroBatches, kRanks, groups});
  }

  [[nodiscard]] double num_ops() const { return static_cast<double>(ops_.size()); }

  /// One training step without the optimizer and the data, which are not part of the executor.
  void step() {
    static_cast<void>(executor_->run(instructions_, {.load = [](StageId, MicroBatchId) { return MicroBatch{}; },
                                                     .update = {.all_stages = [](double) {}}}));
  }

  /// Creates a leaf for each module call of the next bare(), as a leaf accumulates the gradient of one backward.
  void prepare() {
    inputs_.assign(kMicroBatches, {});
    for (const Op& op : ops_) {
      if (op.kind == OpKind::Forward && op.stage != StageId(0)) {
        inputs_[op.micro_batch.index()] = at::ones({1, 1, kHidden}).requires_grad_();
      }
    }
  }

  /// The step's module calls alone, in the same order.
  void bare() {
    for (const Op& op : ops_) call_module(op);
  }

  /// The module calls with Gloo's calls between them, as in the program.
  void bare(RawGloo& gloo) {
    for (const Instruction& instruction : instructions_) {
      if (instruction.kind == InstructionKind::Compute) {
        call_module(instruction.op);
      } else {
        gloo.run(instruction);
      }
    }
  }

 private:
  void call_module(const Op& op) {
    at::Tensor& output = outputs_[op.micro_batch.index()];
    if (op.kind == OpKind::Forward) {
      output = stages_.at(op.stage)->forward(inputs_[op.micro_batch.index()], batch_);
    } else {
      const bool last = op.stage.value() + 1 == kStages;
      torch::autograd::backward({std::move(output)}, {last ? at::Tensor() : gradient_});
    }
  }

  const std::vector<Op>& ops_;
  const std::vector<Instruction>& instructions_;
  std::map<StageId, std::unique_ptr<Stage>> stages_;
  std::unique_ptr<Executor> executor_;
  MicroBatch batch_;
  at::Tensor gradient_ = at::ones({1, 1, kHidden});
  std::vector<at::Tensor> inputs_ = std::vector<at::Tensor>(kMicroBatches);   // [micro-batch]
  std::vector<at::Tensor> outputs_ = std::vector<at::Tensor>(kMicroBatches);  // [micro-batch]
};

/// Microseconds of CPU time for each compute op of one worker.
struct Figures {
  double bare = 0;
  double gloo = 0;  // of c10d's and Gloo's own calls
  double step = 0;
  Spread overhead;           // step - bare - gloo, of the worker's thread
  double other_threads = 0;  // of the process during the step: Gloo's threads; meaningless if ranks are threads
};

/// CPU time of a worker's thread, and of its process's other threads, for each op.
struct OpCost {
  double own = 0;
  double others = 0;
};

OpCost cost_of_op(const Worker& worker, const std::function<void()>& action) {
  const double own = cpu_microseconds(CLOCK_THREAD_CPUTIME_ID);
  const double process = cpu_microseconds(CLOCK_PROCESS_CPUTIME_ID);
  action();
  const double own_spent = cpu_microseconds(CLOCK_THREAD_CPUTIME_ID) - own;
  const double process_spent = cpu_microseconds(CLOCK_PROCESS_CPUTIME_ID) - process;
  return {own_spent / worker.num_ops(), (process_spent - own_spent) / worker.num_ops()};
}

/// `raw`: Gloo's calls of the same worker; null if ranks are threads.
Figures measure(const Case& with, WorkerId id, Transport& transport, RawGloo* raw) {
  at::set_num_threads(1);
  Worker worker(with, id, transport);
  const auto bare_with_gloo = [&] { raw != nullptr ? worker.bare(*raw) : worker.bare(); };
  for (int i = 0; i < kWarmUpSteps; ++i) {
    worker.step();
    worker.prepare();
    worker.bare();
    worker.prepare();
    bare_with_gloo();
  }
  std::vector<double> bare;
  std::vector<double> gloo;
  std::vector<double> step;
  std::vector<double> overhead;
  std::vector<double> others;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    OpCost with_executor;
    OpCost without;
    OpCost calls;  // of modules and Gloo
    for (int i = 0; i < kStepsOfRepetition; ++i) {
      const OpCost one = cost_of_op(worker, [&] { worker.step(); });
      worker.prepare();
      without.own += cost_of_op(worker, [&] { worker.bare(); }).own / kStepsOfRepetition;
      worker.prepare();
      if (raw != nullptr) calls.own += cost_of_op(worker, bare_with_gloo).own / kStepsOfRepetition;
      with_executor.own += one.own / kStepsOfRepetition;
      with_executor.others += one.others / kStepsOfRepetition;
    }
    if (raw == nullptr) calls = without;
    step.push_back(with_executor.own);
    bare.push_back(without.own);
    gloo.push_back(calls.own - without.own);
    overhead.push_back(with_executor.own - calls.own);
    others.push_back(with_executor.others);
  }
  return {spread_of(bare).median, spread_of(gloo).median, spread_of(step).median, spread_of(overhead),
          spread_of(others).median};
}

void print_row(const std::string& transport, const Case& with, std::size_t worker, const Figures& figures) {
  const std::string others = transport == "threads" ? "-" : fmt::format("{:.1f}", figures.other_threads);
  fmt::print("{:<10} {:<9} {:>6} {:>8.1f} {:>8.1f} {:>8.1f} {:>10.1f} {:>7.1f} .. {:<6.1f} {:>13}\n", transport,
             with.schedule.name, worker, figures.bare, figures.gloo, figures.step, figures.overhead.median,
             figures.overhead.low, figures.overhead.high, others);
  std::fflush(stdout);
}

/// Runs ranks as threads. Returns the largest median overhead.
double measure_threads(const std::string& schedule) {
  const Case with(schedule);
  std::vector<Figures> figures(kStages);
  run_rank_threads(kStages, kRanks.ranks_of(stage_groups(with.schedule.placement)),
                   [&](RankId rank, Transport& transport) {
                     figures[rank.index()] = measure(with, WorkerId(rank.value()), transport, nullptr);
                   });
  double largest = 0;
  for (std::size_t w = 0; w < figures.size(); ++w) {
    print_row("threads", with, w, figures[w]);
    largest = std::max(largest, figures[w].overhead.median);
  }
  return largest;
}

/// Runs this process as one rank over Gloo; rank 0 prints the figures of all ranks. Returns the largest median
/// overhead.
double measure_rank(const std::string& schedule, const RankEnvironment& rank) {
  constexpr std::size_t kNumbers = 7;
  const Case with(schedule);
  const RankGroups groups = kRanks.ranks_of(stage_groups(with.schedule.placement));
  const WorkerId worker(rank.rank);
  const std::string store = fmt::format("/proc/self/fd/{}", ::open(rank.rendezvous.file.c_str(), O_RDWR | O_CLOEXEC));
  const auto transport =
      connect_gloo({.rank = rank.rank, .world_size = rank.world_size, .rendezvous = rank.rendezvous, .groups = groups});
  RawGloo raw(RankId(rank.rank), with.program, groups, store, {{1, 1, kHidden}, at::kFloat}, kHidden);
  const Figures mine = measure(with, worker, *transport, &raw);
  std::vector<double> all(kStages * kNumbers, 0);
  std::ranges::copy(std::vector{mine.bare, mine.gloo, mine.step, mine.overhead.low, mine.overhead.median,
                                mine.overhead.high, mine.other_threads},
                    all.begin() + static_cast<std::ptrdiff_t>(kNumbers) * rank.rank);
  transport->all_sum(all);
  double largest = 0;
  for (std::size_t w = 0; rank.rank == 0 && w < kStages; ++w) {
    const double* n = &all[w * kNumbers];
    print_row("processes", with, w, {n[0], n[1], n[2], {n[3], n[4], n[5]}, n[6]});
    largest = std::max(largest, n[4]);
  }
  return largest;
}

void print_verdict(const std::string& what, double largest, double limit) {
  fmt::print("largest median on {}: {:.1f} us per op; required: at most {:.0f}: {}\n", what, largest, limit,
             largest <= limit ? "met" : "NOT MET");
}

int run_all() {
  fmt::print("Overhead of executor and transport, microseconds of CPU time per compute op\n{}\n",
             machine_line("LibTorch " TORCH_VERSION));
  fmt::print("D = {}, N = {}, hidden states of {} floats; {} repetitions of {} steps, median and quartiles\n", kStages,
             kMicroBatches, kHidden, kRepetitions, kStepsOfRepetition);
  fmt::print("{:<10} {:<9} {:>6} {:>8} {:>8} {:>8} {:>10} {:>17} {:>13}\n", "ranks", "schedule", "worker", "bare",
             "gloo", "step", "overhead", "quartiles", "other threads");
  std::fflush(stdout);
  double largest = 0;
  int failed = 0;
  for (const char* schedule : {"1f1b", "chimera"}) {
    // Processes first: launch() requires that this program has no other thread.
    failed += launch({.ranks = kStages, .arguments = {schedule}}) != 0;
  }
  for (const char* schedule : {"1f1b", "chimera"}) largest = std::max(largest, measure_threads(schedule));
  print_verdict("threads", largest, kLimitOnThreads);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  using namespace chimera;
  try {
    const auto rank = rank_environment();
    if (!rank) return benchmarks::run_all();
    if (argc != 2) return 2;
    const double largest = benchmarks::measure_rank(argv[1], *rank);
    if (rank->rank == 0)
      benchmarks::print_verdict("processes beyond Gloo's own calls", largest, benchmarks::kLimitOnProcesses);
    return 0;
  } catch (const std::exception& error) {
    report_failure({.message = error.what()});
    fmt::print(stderr, "overhead: {}\n", error.what());
    return 1;
  }
}

// Checks that the planner's choice is the fastest: ten problems, with all candidates trained on this machine.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/contest.h"
#include "bench/machine_line.h"
#include "bench/random_letters.h"
#include "bench/statistics.h"
#include "core/cgroup.h"
#include "core/error.h"
#include "core/files.h"
#include "core/resident_memory.h"
#include "launch/local/launcher.h"
#include "launch/local/rank.h"
#include "measuring/step_contest.h"
#include "plan/plan.h"
#include "profile/profiler.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera::benchmarks {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kAsFast = 1.03;  // times the fastest candidate's time
constexpr double kSeconds = 10;   // of a profile

struct Problem {
  std::string name;
  std::string model;
  std::int64_t vocabulary;
  std::int64_t workers;
  std::int64_t mini_batch;
  std::int64_t sequence;
  double memory_mib;
  bool share_memory = true;  // false: all-reduces use sockets
  std::vector<std::string> schedules = {"1f1b", "chimera", "zb-h1"};
};

std::vector<Problem> problems() {
  return {
      {"plenty of everything", "gpt2-mini", 512, 2, 8, 128, 4096},
      {"short sequences", "gpt2-mini", 512, 2, 4, 16, 4096},
      {"large head", "gpt2-mini", 16384, 2, 4, 32, 4096},
      {"large head, little memory", "gpt2-mini", 16384, 2, 4, 32, 160},
      {"little memory", "gpt2-mini", 512, 2, 8, 128, 90},
      {"odd mini-batch", "gpt2-mini", 512, 2, 5, 128, 4096},
      {"two sequences", "gpt2-mini", 512, 2, 2, 128, 4096},
      {"BERT", "bert-tiny", 512, 2, 16, 64, 4096},
      {"slow link", "gpt2-mini", 16384, 2, 4, 32, 4096, false},
      {"four workers, two cores", "gpt2-mini", 512, 4, 8, 128, 4096, true, {"1f1b", "chimera"}},
  };
}

struct Options {
  std::int64_t rounds = 7;
  std::string only;
  std::string folder;  // passed to ranks
};

ModelConfig model_of(const Problem& problem) {
  return with_overrides(find_model(problem.model), {.vocabulary = problem.vocabulary});
}

std::string model_file(const Options& options, const Problem& problem) {
  return fmt::format("{}/{}-{}.toml", options.folder, problem.model, problem.vocabulary);
}

void write_model(const Options& options, const Problem& problem) {
  const ModelConfig model = model_of(problem);
  std::ofstream(model_file(options, problem)) << fmt::format(
      "family = \"{}\"\nlayers = {}\nhidden = {}\nheads = {}\nfeed_forward = {}\nvocabulary = {}\npositions = {}\ntied "
      "= false\n",
      to_text(model.family), model.layers, model.hidden, model.heads, model.feed_forward, model.vocabulary,
      model.positions);
}

PlanProblem plan_problem(const Problem& problem, MachineProfile machine) {
  PlanProblem plan;
  plan.model = model_of(problem);
  plan.machine = std::move(machine);
  plan.workers = problem.workers;
  plan.mini_batch = problem.mini_batch;
  plan.memory_bytes = problem.memory_mib * kMiB;
  plan.workload.sequence = problem.sequence;
  return plan;
}

TrainOptions train_options(const Options& options, const Problem& problem, const Candidate& candidate) {
  TrainOptions train;
  train.model.name = model_file(options, problem);
  train.data.training = options.folder + "/text.txt";
  train.schedule.name = candidate.schedule;
  train.schedule.shape = candidate.shape;
  train.parallel.data_parallel = candidate.data_parallel;
  train.data.micro_batch_size = candidate.micro_batch_size;
  train.data.sequence = problem.sequence;
  train.schedule.partition = candidate.partition;
  train.memory.recompute = recompute_choice(candidate);
  train.device.threads = 1;
  train.updates.steps = 1'000'000;  // of the learning-rate schedule
  return train;
}

/// Rank 0's profile, on all ranks.
MachineProfile profiled(const Options& options, const Problem& problem, Transport& transport, int rank) {
  ProfileOptions profile;
  profile.tensor_parallel = {};
  profile.models = {model_file(options, problem)};
  profile.micro_batch_sizes.clear();
  for (std::int64_t size = 1; size <= std::min<std::int64_t>(8, problem.mini_batch); size *= 2) {
    profile.micro_batch_sizes.push_back(size);
  }
  profile.sequence = problem.sequence;
  profile.seconds = kSeconds;
  const MachineMeasurement report = measure_machine(profile, transport, rank, [](const std::string&) {});
  const std::string file = options.folder + "/machine.json";
  if (rank == 0) std::ofstream(file) << to_json(report.machine);
  Lockstep(transport, rank, 1).barrier();
  return read_machine(file);
}

struct Measured {
  RankedCandidate ranked;
  double seconds = 0;  // of a step: the median round
};

/// All candidates that fit, the planner's choice first.
std::vector<Measured> measure(const Options& options, const Problem& problem, const RankEnvironment& rank,
                              const std::string& rendezvous) {
  const auto transport = connect_gloo({.rank = rank.rank,
                                       .world_size = rank.world_size,
                                       .rendezvous = file_rendezvous(rendezvous + "-world"),
                                       .groups = profile_groups(),
                                       .share_memory = problem.share_memory});
  Predictor predictor(plan_problem(problem, profiled(options, problem, *transport, rank.rank)));
  const Plan plan = make_plan(predictor, {.schedules = problem.schedules, .top = 0});
  std::vector<ContestRun> runs;
  for (const RankedCandidate& each : plan.ranked)
    runs.emplace_back(train_options(options, problem, each.candidate), problem.share_memory);
  Lockstep ranks(*transport, rank.rank, profile_ranks({}, available_cores()).computing);
  SpeedGauge gauge(ranks, {{"gpt2-mini", 2}});
  StepContest contest(ranks, rank.world_size, gauge, runs, rendezvous);
  contest.round();
  contest.forget();
  for (std::int64_t round = 0; round < options.rounds; ++round) contest.round();
  const auto seconds = at_median_speed(contest.times());
  std::vector<Measured> measured;
  for (std::size_t k = 0; k < runs.size(); ++k) measured.push_back({plan.ranked[k], spread_of(seconds[k]).median});
  return measured;
}

const Measured& fastest_of(const std::vector<Measured>& all) {
  return *std::ranges::min_element(all, {}, &Measured::seconds);
}

/// A choice that ignores the problem: a schedule with W and D, and the largest or smallest micro-batch.
struct Constant {
  std::string name;
  std::string schedule;
  std::int64_t data_parallel;
  bool largest;
};

std::vector<Constant> constants() {
  std::vector<Constant> all = {{"data parallelism, largest micro-batch", "1f1b", 0, true},
                               {"data parallelism, smallest micro-batch", "1f1b", 0, false}};
  for (const char* schedule : {"1f1b", "chimera", "zb-h1"}) {
    for (const bool largest : {true, false}) {
      all.push_back(
          {fmt::format("{}, W = 1, {} micro-batch", schedule, largest ? "largest" : "smallest"), schedule, 1, largest});
    }
  }
  return all;
}

/// The time of the constant choice; empty if it does not fit or does not exist.
std::optional<double> seconds_of(const Constant& constant, const Problem& problem, const std::vector<Measured>& all) {
  const Measured* found = nullptr;
  for (const Measured& each : all) {
    const Candidate& candidate = each.ranked.candidate;
    const std::int64_t groups = constant.data_parallel == 0 ? problem.workers : constant.data_parallel;
    if (candidate.schedule != constant.schedule || candidate.data_parallel != groups) continue;
    if (candidate.partition.rule != PartitionRule::Even || candidate.shape.scale != ScaleMethod::Direct) continue;
    const auto size = [](const Measured& one) { return one.ranked.candidate.micro_batch_size; };
    if (found == nullptr || (constant.largest ? size(each) > size(*found) : size(each) < size(*found))) found = &each;
  }
  return found == nullptr ? std::nullopt : std::optional(found->seconds);
}

void print_head(const Options& options) {
  fmt::print("The planner's choice and the fastest of all candidates that fit, in ms a step\n{}\n",
             machine_line("LibTorch " TORCH_VERSION));
  fmt::print("medians of {} rounds in which all candidates take turns, step by step, at the machine's median speed\n\n",
             options.rounds);
  fmt::print("| problem | fit | chosen | predicted | measured | fastest | measured | times |\n");
  fmt::print("| --- | ---: | --- | ---: | ---: | --- | ---: | ---: |\n");
  std::fflush(stdout);
}

void print_row(const Problem& problem, const std::vector<Measured>& all) {
  const Measured& chosen = all.front();
  const Measured& fastest = fastest_of(all);
  fmt::print("| {} | {} | {} | {:.1f} | {:.1f} | {} | {:.1f} | {:.3f} |\n", problem.name, all.size(),
             describe(chosen.ranked.candidate), 1e3 * chosen.ranked.prediction.step_seconds, 1e3 * chosen.seconds,
             describe(fastest.ranked.candidate), 1e3 * fastest.seconds, chosen.seconds / fastest.seconds);
  std::fflush(stdout);
}

class Scores {
 public:
  void add(const Problem& problem, const std::vector<Measured>& all) {
    const double fastest = fastest_of(all).seconds;
    ++problems_;
    right_ += all.front().seconds <= kAsFast * fastest;
    winners_.insert(describe(fastest_of(all).ranked.candidate));
    for (const Constant& constant : constants()) {
      const auto seconds = seconds_of(constant, problem, all);
      of_constants_[constant.name] += seconds && *seconds <= kAsFast * fastest;
    }
  }

  void print() const {
    fmt::print("\n- fastest or within 3 % of it: {} of {}\n", right_, problems_);
    fmt::print("- different winners: {}\n", winners_.size());
    const auto best = std::ranges::max_element(of_constants_, {}, [](const auto& entry) { return entry.second; });
    fmt::print("- the best constant answer ({}): {} of {}\n", best->first, best->second, problems_);
    const std::string data_parallel = constants().front().name;
    fmt::print("- {}: {} of {}\n\n", data_parallel, of_constants_.at(data_parallel), problems_);
  }

 private:
  int problems_ = 0;
  int right_ = 0;
  std::set<std::string> winners_;
  std::map<std::string, int> of_constants_;
};

bool chosen(const Options& options, const Problem& problem) {
  return problem.name.find(options.only) != std::string::npos;
}

void measure_as_rank(const Options& options, const RankEnvironment& rank) {
  keep_freed_memory();
  at::set_num_interop_threads(1);
  at::set_num_threads(1);
  if (rank.rank == 0) print_head(options);
  Scores scores;
  const std::vector<Problem> all = problems();
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (!chosen(options, all[k])) continue;
    const auto measured = measure(options, all[k], rank, fmt::format("{}/{}", options.folder, k));
    if (rank.rank != 0) continue;
    print_row(all[k], measured);
    scores.add(all[k], measured);
  }
  if (rank.rank == 0) scores.print();
}

int run_all(Options options) {
  const TemporaryFolder folder;
  options.folder = folder.file("");
  write_random_letters(options.folder + "/text.txt");
  std::int64_t workers = 2;
  for (const Problem& problem : problems()) {
    write_model(options, problem);
    workers = std::max(workers, problem.workers);
  }
  const int ranks = std::max(static_cast<int>(workers), profile_ranks({}, available_cores()).started);
  return launch(
      {.ranks = ranks,
       .arguments = {"--rounds", std::to_string(options.rounds), "--only", options.only, "--folder", options.folder}});
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  using namespace chimera;
  benchmarks::Options options;
  CLI::App app("Whether the planner's choice is the fastest: ten problems whose candidates are all trained");
  app.add_option("--rounds", options.rounds, "steps of each candidate")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--only", options.only, "problems whose names contain this");
  app.add_option("--folder", options.folder)->group("");  // passed to ranks
  CLI11_PARSE(app, argc, argv);
  try {
    const auto rank = rank_environment();
    if (!rank) return benchmarks::run_all(options);
    benchmarks::measure_as_rank(options, *rank);
    return 0;
  } catch (const std::exception& error) {
    report_failure({.message = error.what()});
    fmt::print(stderr, "plans: {}\n", error.what());
    return 1;
  }
}

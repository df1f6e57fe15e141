#include "validation/validation.h"
#include "core/files.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/contest.h"
#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/shell_words.h"
#include "generate/registry.h"
#include "model_config/config.h"
#include "plan/cluster_profile.h"
#include "plan/machine.h"
#include "plan/predict.h"

namespace chimera {
namespace {

struct ModelShape {
  const char* model;
  std::int64_t micro_batch_size;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct Errors {
  double median = 0;
  double worst = 0;
};

Errors errors_of(std::vector<double> values) {
  if (values.empty()) return {};
  for (double& value : values) value = std::abs(value);
  return {median(values), std::ranges::max(values)};
}

std::string row(const Validated& one) {
  constexpr double kMebibyte = 1 << 20;
  return fmt::format("| {} | {:.1f} | {:.1f} | {:+.1f} % | {:.1f} % | {:.1f} | {:.1f} | {:+.1f} % | {:.0f} |\n",
                     describe(one.run), 1e3 * one.predicted_seconds, 1e3 * median(one.seconds), 100 * one.time_error(),
                     100 * one.spread(), one.predicted_bytes / kMebibyte, one.bytes / kMebibyte,
                     100 * one.memory_error(), one.resident_bytes / kMebibyte);
}

std::string kind_of(const GridRun& run) {
  if (run.vocabulary > 0) return run.sockets ? "all-reduces over sockets" : "all-reduces in shared memory";
  if (run.tensor_parallel > 1) return fmt::format("{}, tensor parallelism", run.model);
  if (run.sequence != kUsualSequence) return "attention";
  const char* how = run.transport == TransportKind::Threads ? ", threads" : "";
  return fmt::format("{}, {} workers{}", run.model, run.stages, run.recomputes ? ", recompute" : how);
}

std::string table_of_kinds(const std::vector<Validated>& runs) {
  std::map<std::string, std::vector<double>> kinds;
  for (const Validated& one : runs) kinds[kind_of(one.run)].push_back(one.time_error());
  std::string text =
      "\n| kind of run | runs | median error | median size | worst |\n| --- | ---: | ---: | ---: | ---: |\n";
  for (const auto& [kind, errors] : kinds) {
    const Errors sizes = errors_of(errors);
    text += fmt::format("| {} | {} | {:+.1f} % | {:.1f} % | {:.1f} % |\n", kind, errors.size(), 100 * median(errors),
                        100 * sizes.median, 100 * sizes.worst);
  }
  return text;
}

std::string verdict(double value, double limit) { return value <= limit ? "met" : "NOT MET"; }

/// Adds Chimera, and two groups of 1F1B; both have two copies of each stage.
void add_sums(std::vector<GridRun>& grid) {
  struct Shape {
    const char* schedule;
    std::int64_t stages;
    std::int64_t data_parallel;
  };
  for (const auto& [model, vocabulary] : {std::pair{"gpt2-tiny", 32768}, {"gpt2-mini", 16384}}) {
    for (const Shape& shape : {Shape{kPaperSchedule, 2, 1}, Shape{kPaperSchedule, 4, 1}, Shape{kPlainSchedule, 2, 2}}) {
      GridRun run{model, 1, shape.schedule, shape.stages, shape.stages};
      run.data_parallel = shape.data_parallel;
      run.sequence = 32;
      run.vocabulary = vocabulary;
      grid.insert(grid.end(), 2, run);
      grid.back().sockets = true;
    }
  }
}

/// One schedule of each kind.
constexpr std::array kRepresentativeSchedules = {"gpipe", "1f1b", "chimera", "zb-h1"};

void add_attention(std::vector<GridRun>& grid) {
  for (const char* schedule : kRepresentativeSchedules) {
    for (const std::int64_t stages : {2, 4}) {
      GridRun run{"gpt2-tiny", 1, schedule, stages, stages};
      run.sequence = 1024;
      grid.insert(grid.end(), 2, run);
      grid.back().recomputes = true;
    }
  }
}

void add_tensor_parallel(std::vector<GridRun>& grid) {
  for (const char* model : {"gpt2-mini", "llama-mini"}) {
    for (const auto& [schedule, stages] : {std::pair{"gpipe", 1}, {kPlainSchedule, 2}, {kPaperSchedule, 2}}) {
      GridRun run{model, 2, schedule, stages, 4};
      run.tensor_parallel = 2;
      grid.push_back(run);
    }
  }
}

}  // namespace

ModelOverrides overrides_of(const GridRun& run) {
  ModelOverrides overrides;
  if (run.vocabulary > 0) overrides.vocabulary = run.vocabulary;
  if (run.tensor_parallel > 1) overrides.heads = 8;
  if (run.tensor_parallel > 1 && find_model(run.model).family == Family::Llama) overrides.key_value_heads = 2;
  return overrides;
}

ModelConfig model_of(const GridRun& run) { return with_overrides(find_model(run.model), overrides_of(run)); }

std::vector<GridRun> validation_grid() {
  std::vector<GridRun> grid;
  for (const auto& [model, size] : {ModelShape{"gpt2-mini", 2}, ModelShape{"bert-tiny", 8}}) {
    for (const char* schedule : kRepresentativeSchedules) {
      for (const std::int64_t stages : {2, 4}) {
        for (const std::int64_t micro_batches : {stages, 2 * stages}) {
          const GridRun run{model, size, schedule, stages, micro_batches};
          grid.insert(grid.end(), 3, run);
          grid[grid.size() - 2].recomputes = true;
          grid.back().transport = TransportKind::Threads;
        }
      }
    }
  }
  add_sums(grid);
  add_tensor_parallel(grid);
  add_attention(grid);
  return grid;
}

std::string describe(const GridRun& run) {
  std::string words = fmt::format("{} b {}, {}", run.model, run.micro_batch_size, run.schedule);
  if (run.data_parallel > 1) words += fmt::format(" W {}", run.data_parallel);
  if (run.tensor_parallel > 1) words += fmt::format(" T {}", run.tensor_parallel);
  words += fmt::format(" D {} N {}", run.stages, run.micro_batches);
  if (run.vocabulary > 0) words += fmt::format(", vocabulary {}", run.vocabulary);
  if (run.sequence != kUsualSequence) words += fmt::format(", sequence {}", run.sequence);
  if (run.recomputes) words += ", recompute";
  if (run.transport == TransportKind::Threads) words += ", threads";
  return run.sockets ? words + ", sockets" : words;
}

std::vector<std::string> training_flags(const GridRun& run) {
  std::vector<std::string> flags = {"--model",
                                    run.model,
                                    "--micro-batch-size",
                                    std::to_string(run.micro_batch_size),
                                    "--schedule",
                                    run.schedule,
                                    "--stages",
                                    std::to_string(run.stages),
                                    "--micro-batches",
                                    std::to_string(run.micro_batches),
                                    "--recompute",
                                    run.recomputes ? "full" : "none",
                                    "--transport",
                                    to_text(run.transport),
                                    "--threads",
                                    "1",
                                    "--data-parallel",
                                    std::to_string(run.data_parallel),
                                    "--sequence",
                                    std::to_string(run.sequence)};
  const auto add = [&](const char* flag, const std::optional<std::int64_t>& number) {
    if (number) flags.insert(flags.end(), {flag, std::to_string(*number)});
  };
  if (run.tensor_parallel > 1) add("--tensor-parallel", run.tensor_parallel);
  const ModelOverrides overrides = overrides_of(run);
  add("--heads", overrides.heads);
  add("--key-value-heads", overrides.key_value_heads);
  add("--vocabulary", overrides.vocabulary);
  return flags;
}

double Validated::time_error() const { return predicted_seconds / median(seconds) - 1; }
double Validated::memory_error() const { return predicted_bytes / bytes - 1; }
double Validated::spread() const {
  std::vector<double> halves[2];
  for (std::size_t i = 0; i < seconds.size(); ++i) halves[i % 2].push_back(seconds[i]);
  const double ratio = median(halves[0]) / median(halves[1]);
  return std::max(ratio, 1 / ratio) - 1;
}

ValidationSummary summarize(const std::vector<Validated>& runs) {
  std::vector<double> times;
  std::vector<double> bytes;
  std::vector<double> spreads;
  for (const Validated& one : runs) {
    times.push_back(one.time_error());
    bytes.push_back(one.memory_error());
    spreads.push_back(one.spread());
  }
  const Errors time = errors_of(times);
  const Errors memory = errors_of(bytes);
  return {time.median, time.worst, memory.median, memory.worst, errors_of(spreads).median};
}

std::string to_text(const Validation& validation) {
  const std::vector<Validated>& runs = validation.runs;
  const ValidationSummary all = summarize(runs);
  std::string text = validation.measured_on + "\n\n";
  text += "| run | predicted ms | measured ms | error | spread | predicted MiB | tensors MiB | error | RSS MiB |\n";
  text += "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  for (const Validated& one : runs) text += row(one);
  text +=
      fmt::format("\n{} runs, none left out; medians of {} turns each\n\n", runs.size(), runs.front().seconds.size());
  text += fmt::format(
      "- step time: median error {:.1f} % (5 %: {}), worst {:.1f} % (15 %: {}); the same run twice: {:.1f} %\n",
      100 * all.median_time_error, verdict(all.median_time_error, 0.05), 100 * all.worst_time_error,
      verdict(all.worst_time_error, 0.15), 100 * all.median_spread);
  text += fmt::format("- memory: median error {:.1f} % (5 %: {}), worst {:.1f} %\n", 100 * all.median_memory_error,
                      verdict(all.median_memory_error, 0.05), 100 * all.worst_memory_error);
  return text + table_of_kinds(runs);
}

std::string to_json(const Validation& validation) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Validated& one : validation.runs) {
    list.push_back({{"name", describe(one.run)},
                    {"model", one.run.model},
                    {"schedule", one.run.schedule},
                    {"stages", one.run.stages},
                    {"micro_batches", one.run.micro_batches},
                    {"micro_batch_size", one.run.micro_batch_size},
                    {"recompute", one.run.recomputes ? "full" : "none"},
                    {"transport", to_text(one.run.transport)},
                    {"data_parallel", one.run.data_parallel},
                    {"tensor_parallel", one.run.tensor_parallel},
                    {"sequence", one.run.sequence},
                    {"vocabulary", model_of(one.run).vocabulary},
                    {"sockets", one.run.sockets},
                    {"predicted_seconds", one.predicted_seconds},
                    {"step_seconds", one.seconds},
                    {"predicted_bytes", one.predicted_bytes},
                    {"tensor_bytes", one.bytes},
                    {"resident_bytes", one.resident_bytes}});
  }
  const ValidationSummary all = summarize(validation.runs);
  const nlohmann::ordered_json json = {{"machine", validation.measured_on},
                                       {"median_time_error", all.median_time_error},
                                       {"worst_time_error", all.worst_time_error},
                                       {"median_memory_error", all.median_memory_error},
                                       {"worst_memory_error", all.worst_memory_error},
                                       {"profile", read_ordered_json(to_json(validation.machine))},
                                       {"sockets_profile", read_ordered_json(to_json(validation.on_sockets))},
                                       {"runs", list}};
  return json_text(json, 1) + "\n";
}

namespace {

std::string with_words(std::string line, const std::vector<std::string>& words) {
  for (const std::string& word : words) line += " " + shell_word(word);
  return line;
}

/// Trains three steps and records peak bytes of tensors and processes.
void count_tensors(const ValidationOptions& options, const TemporaryFolder& folder, Validated& one) {
  const std::string tensors = folder.file("tensors.json");
  const std::string metrics = folder.file("memory.jsonl");
  std::vector<std::string> words = training_flags(one.run);
  words.insert(words.end(), {"--data", options.data, "--steps", "3", "--tensor-memory", tensors, "--overwrite"});
  TrainingRun run(with_words(shell_word(options.program) + " train", words) + " --metrics \"$CHIMERA_METRICS\"",
                  metrics);
  (void)run.wait(0);
  const auto peaks = nlohmann::json::parse(std::ifstream(tensors)).at("peak_bytes").get<std::vector<double>>();
  one.bytes = std::ranges::max(peaks);
  std::ifstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    one.resident_bytes = read_json(line).at("peak_memory_bytes").get<double>();
  }
}

GridRun grid_run_of(const JsonValue& value) {
  const std::string name = value.text("name");
  for (const GridRun& run : validation_grid()) {
    if (describe(run) == name) return run;
  }
  value.field("name").fail(fmt::format("'{}' is no run of the grid", name));
}

std::vector<double> step_seconds_of(const JsonValue& value) {
  std::vector<double> seconds;
  for (const JsonValue& each : value.field("step_seconds").list()) seconds.push_back(each.number());
  if (seconds.size() < 2 || !(std::ranges::min(seconds) > 0))
    value.field("step_seconds").fail("expected two or more times above 0");
  return seconds;
}

MachineProfile machine_of(const ValidationOptions& options, const std::vector<MachineProfile>& measured) {
  if (!options.machine.empty()) return read_machine(options.machine);
  return measured.size() == 1 ? measured.front() : merge_machines(measured);
}

}  // namespace

std::vector<GridRun> chosen_runs(const std::string& only) {
  std::vector<GridRun> runs = validation_grid();
  std::erase_if(runs, [&](const GridRun& run) { return describe(run).find(only) == std::string::npos; });
  if (runs.empty()) {
    throw ConfigError(fmt::format("--only '{}': no run of the grid has this name; names look like '{}'", only,
                                  describe(validation_grid().back())));
  }
  return runs;
}

Validation run_validation(const ValidationOptions& options, const MeasureGrid& measure, const PredictRun& predict,
                          const std::function<void(const std::string&)>& say) {
  const std::vector<GridRun> runs = chosen_runs(options.only);
  if (!options.machine.empty()) (void)predict(read_machine(options.machine), runs.front());  // fails early
  const TemporaryFolder folder;
  Validation all;
  for (const GridRun& run : runs) {
    count_tensors(options, folder, all.runs.emplace_back(Validated{.run = run}));
    say(".");
  }
  say("\n");
  const GridTimes times = measure(runs);
  all.machine = machine_of(options, times.machines);
  all.on_sockets = times.on_sockets.empty() ? all.machine : machine_of(options, times.on_sockets);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunPrediction prediction = predict(runs[i].sockets ? all.on_sockets : all.machine, runs[i]);
    all.runs[i].predicted_seconds = prediction.step_seconds;
    all.runs[i].seconds = times.seconds[i];
    all.runs[i].predicted_bytes = prediction.peak_bytes;
  }
  return all;
}

Validation predict_again(const std::string& text, const std::string& source, const PredictRun& predict) {
  const nlohmann::json json = parse_json(text, source);
  const JsonValue root(json, source);
  const auto profile = [&](const char* name) {
    return machine_from_json(json_text(root.field(name).json()), source + ": " + name);
  };
  Validation all{.runs = {},
                 .measured_on = root.text("machine"),
                 .machine = profile("profile"),
                 .on_sockets = profile("sockets_profile")};
  for (const JsonValue& each : root.field("runs").list()) {
    Validated one{.run = grid_run_of(each)};
    const RunPrediction prediction = predict(one.run.sockets ? all.on_sockets : all.machine, one.run);
    one.predicted_seconds = prediction.step_seconds;
    one.predicted_bytes = prediction.peak_bytes;
    one.seconds = step_seconds_of(each);
    one.bytes = each.number("tensor_bytes");
    one.resident_bytes = each.number("resident_bytes");
    all.runs.push_back(one);
  }
  if (all.runs.empty()) root.field("runs").fail("has no run");
  return all;
}

RunPrediction predict_run(const MachineProfile& machine, const GridRun& run) {
  PlanProblem problem;
  problem.model = model_of(run);
  problem.machine = machine;
  if (run.transport == TransportKind::Threads) {  // tensors are passed by reference
    problem.machine.point_to_point = {};
    problem.machine.message_copy = {};
    problem.machine.busy_delay = 0;
  }
  problem.workers = run.data_parallel * run.stages * run.tensor_parallel;
  problem.mini_batch = run.data_parallel * run.micro_batches * run.micro_batch_size;
  problem.memory_bytes = machine.memory_bytes;
  problem.workload.micro_batch_size = run.micro_batch_size;
  problem.workload.sequence = run.sequence;
  Candidate candidate;
  candidate.schedule = run.schedule;
  candidate.shape = {run.stages, run.micro_batches, 2};
  candidate.data_parallel = run.data_parallel;
  candidate.tensor_parallel = run.tensor_parallel;
  candidate.micro_batch_size = run.micro_batch_size;
  if (run.recomputes) {
    for (std::int64_t stage = 0; stage < run.stages; ++stage) candidate.recompute.insert(StageId(stage));
  }
  const Prediction prediction = Predictor(problem).predict(candidate);
  return {prediction.step_seconds, prediction.peak_memory_bytes};
}

}  // namespace chimera

#include "bench/run_validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/training_run.h"
#include "core/error.h"
#include "plan/merge_machines.h"

namespace chimera {
namespace {

std::string with_words(std::string line, const std::vector<std::string>& words) {
  for (const std::string& word : words) line += " " + shell_word(word);
  return line;
}

/// Trains as the program does, three steps, and notes what tensors and processes hold at most.
void count_tensors(const ValidationOptions& options, const TemporaryFolder& folder, Validated& one) {
  const std::string tensors = folder.file("tensors.json");
  const std::string metrics = folder.file("memory.jsonl");
  std::vector<std::string> words = training_flags(one.run);
  words.insert(words.end(), {"--data", options.data, "--steps", "3", "--tensor-memory", tensors});
  TrainingRun run(with_words(shell_word(options.program) + " train", words) + " --metrics \"$CHIMERA_METRICS\"",
                  metrics);
  (void)run.wait(0);
  const auto peaks = nlohmann::json::parse(std::ifstream(tensors)).at("peak_bytes").get<std::vector<double>>();
  one.bytes = std::ranges::max(peaks);
  std::ifstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    one.resident_bytes = nlohmann::json::parse(line).at("peak_memory_bytes").get<double>();
  }
}

MachineProfile machine_of(const ValidationOptions& options, const std::vector<MachineProfile>& measured) {
  if (!options.machine.empty()) return read_machine(options.machine);
  return measured.size() == 1 ? measured.front() : merge_machines(measured);
}

}  // namespace

std::vector<GridRun> chosen_runs(const std::string& only) {
  std::vector<GridRun> runs = validation_grid();
  std::erase_if(runs, [&](const GridRun& run) { return in_words(run).find(only) == std::string::npos; });
  if (runs.empty()) {
    throw ConfigError(fmt::format("--only '{}': no run of the grid is called so; they read like '{}'", only,
                                  in_words(validation_grid().back())));
  }
  return runs;
}

std::vector<Validated> run_validation(const ValidationOptions& options, const MeasureGrid& measure,
                                      const PredictRun& predict, const std::function<void(const std::string&)>& say) {
  const std::vector<GridRun> runs = chosen_runs(options.only);
  if (!options.machine.empty())
    (void)predict(read_machine(options.machine), runs.front());  // what is wrong with it, now
  const GridTimes times = measure(runs);
  const MachineProfile machine = machine_of(options, times.machines);
  const MachineProfile on_sockets = times.on_sockets.empty() ? machine : machine_of(options, times.on_sockets);
  const TemporaryFolder folder;
  std::vector<Validated> all;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunPrediction prediction = predict(runs[i].sockets ? on_sockets : machine, runs[i]);
    Validated one{runs[i], prediction.step_seconds, times.seconds[i], prediction.peak_bytes};
    count_tensors(options, folder, one);
    all.push_back(one);
    say(".");
  }
  say("\n");
  return all;
}

}  // namespace chimera

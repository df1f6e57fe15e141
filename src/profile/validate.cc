#include "profile/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/random_letters.h"
#include "bench/training_run.h"
#include "core/error.h"
#include "plan/merge_machines.h"

namespace chimera {
namespace {

std::string with_words(std::string line, const std::vector<std::string>& words) {
  for (const std::string& word : words) line += " " + shell_word(word);
  return line;
}

std::vector<GridRun> chosen_runs(const std::string& only) {
  std::vector<GridRun> runs = validation_grid();
  std::erase_if(runs, [&](const GridRun& run) { return in_words(run).find(only) == std::string::npos; });
  if (runs.empty()) {
    throw ConfigError(fmt::format("--only '{}': no run of the grid is called so; they read like '{}'", only,
                                  in_words(validation_grid().back())));
  }
  return runs;
}

/// One validation under way.
class Validation {
 public:
  Validation(ValidationOptions options, const PredictRun& predict, const std::function<void(const std::string&)>& say)
      : options_(std::move(options)),
        predict_(predict),
        say_(say),
        runs_(chosen_runs(options_.only)),
        data_(options_.data) {
    if (!data_.empty()) return;
    data_ = folder_.file("text.txt");
    write_random_letters(data_);
  }

  std::vector<Validated> run() {
    const bool measures = options_.machine.empty();
    MachineProfile machine = measures ? profiled("before") : read_machine(options_.machine);
    (void)predict_(machine, runs_.front());  // whatever is wrong with a given profile, now
    const std::vector<Score> scores = run_contest(contenders(), options_.contest, say_);
    if (measures) machine = merge_machines({machine, profiled("after")});
    std::vector<Validated> all;
    for (std::size_t i = 0; i < runs_.size(); ++i) all.push_back(validated(runs_[i], scores[i], machine));
    say_("\n");
    return all;
  }

 private:
  [[nodiscard]] std::string training(const GridRun& run, std::int64_t steps) const {
    std::vector<std::string> words = training_flags(run);
    words.insert(words.end(), {"--data", data_, "--steps", std::to_string(steps)});
    return with_words(shell_word(options_.program) + " train", words) + " --metrics \"$CHIMERA_METRICS\"";
  }

  [[nodiscard]] std::vector<Contender> contenders() const {
    std::vector<Contender> list;
    for (const GridRun& run : runs_) list.push_back({in_words(run), training(run, options_.steps)});
    return list;
  }

  /// Measures the machine with the very models of the runs.
  MachineProfile profiled(const std::string& when) {
    say_(fmt::format("profile {}\n", when));
    std::set<std::string> models;
    for (const GridRun& run : runs_) models.insert(run.model);
    std::string names;
    for (const std::string& model : models) names += (names.empty() ? "" : ",") + model;
    const std::string file = folder_.file(when + ".json");
    const std::string line =
        with_words(shell_word(options_.program) + " profile", {"--model", names, "--output", file}) +
        " >/dev/null 2>&1";
    if (std::system(line.c_str()) != 0) throw Error(line + " failed");
    return read_machine(file);
  }

  Validated validated(const GridRun& run, const Score& score, const MachineProfile& machine) {
    const RunPrediction prediction = predict_(machine, run);
    Validated one{run, prediction.step_seconds, score.step_seconds, prediction.peak_bytes};
    if (score.disturbed > 0) {
      one.excluded = fmt::format("others took over {:.0f} % of the cores in {} of {} rounds",
                                 100 * options_.contest.most_disturbed, score.disturbed, score.step_seconds.size());
    }
    count_tensors(one);
    say_(".");
    return one;
  }

  void count_tensors(Validated& one) {
    constexpr std::int64_t kSteps = 3;
    const std::string tensors = folder_.file("tensors.json");
    const std::string metrics = folder_.file("memory.jsonl");
    TrainingRun run(training(one.run, kSteps) + " --tensor-memory " + shell_word(tensors), metrics);
    (void)run.wait(0);
    const auto peaks = nlohmann::json::parse(std::ifstream(tensors)).at("peak_bytes").get<std::vector<double>>();
    one.bytes = std::ranges::max(peaks);
    std::ifstream lines(metrics);
    for (std::string line; std::getline(lines, line);) {
      one.resident_bytes = nlohmann::json::parse(line).at("peak_memory_bytes").get<double>();
    }
  }

  ValidationOptions options_;
  const PredictRun& predict_;
  const std::function<void(const std::string&)>& say_;
  std::vector<GridRun> runs_;
  BenchFolder folder_;
  std::string data_;
};

}  // namespace

std::vector<Validated> validate(const ValidationOptions& options, const PredictRun& predict,
                                const std::function<void(const std::string&)>& say) {
  return Validation(options, predict, say).run();
}

}  // namespace chimera

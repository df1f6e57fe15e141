#include "bench/training_run.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/statistics.h"
#include "core/error.h"
#include "core/json.h"
#include "core/shell_words.h"

namespace chimera {

TrainingRun::TrainingRun(std::string command, std::string metrics)
    : command_(std::move(command)), metrics_(std::move(metrics)) {
  std::filesystem::remove(metrics_);
  const std::string line =
      fmt::format("export CHIMERA_METRICS={}\n{{ {}\n}} 2>&1 >/dev/null", shell_word(metrics_), command_);
  messages_ = ::popen(line.c_str(), "r");
  if (messages_ == nullptr) throw Error("cannot run " + command_);
}

TrainingRun::~TrainingRun() {
  if (messages_ != nullptr) ::pclose(messages_);
}

TrainingFigures TrainingRun::wait(std::int64_t skipped) {
  std::string messages;
  for (int c = std::fgetc(messages_); c != EOF; c = std::fgetc(messages_)) messages += static_cast<char>(c);
  if (::pclose(std::exchange(messages_, nullptr)) != 0) throw Error(fmt::format("{} failed:\n{}", command_, messages));
  TrainingFigures figures;
  std::vector<double> speeds;
  std::vector<double> seconds;
  std::ifstream file(metrics_);
  try {
    for (std::string line; std::getline(file, line);) {
      const auto step = read_json(line);
      figures.losses.push_back(step.at("loss").get<double>());
      if (step.at("step").get<std::int64_t>() <= skipped) continue;
      speeds.push_back(step.at("tokens_per_second").get<double>());
      seconds.push_back(step.at("step_seconds").get<double>());
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}: its metrics cannot be read ({})", command_, error.what()));
  }
  if (speeds.empty()) throw Error(fmt::format("{} wrote no more than {} steps; give more", command_, skipped));
  figures.tokens_per_second = spread_of(std::move(speeds)).median;
  figures.step_seconds = spread_of(std::move(seconds)).median;
  return figures;
}

}  // namespace chimera

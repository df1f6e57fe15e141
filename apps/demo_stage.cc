#include "demo_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "core/error.h"
#include "core/output_file.h"
#include "own_command.h"

namespace chimera::apps {
namespace {

constexpr std::size_t kColumns = 96;

}  // namespace

DemoStage::DemoStage(const std::string& folder, bool pauses) : folder_(folder), pauses_(pauses) {
  if (folder.empty()) folder_ = temporary_.emplace().path();
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw ConfigError(fmt::format("--folder {}: cannot be made ({})", folder_.string(), error.message()));
}

void DemoStage::title(const std::string& words) { std::cout << "\n== " << words << "\n\n" << std::flush; }

void DemoStage::say(const std::string& words) {
  std::istringstream stream(words);
  std::string line;
  for (std::string word; stream >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > kColumns) {
      std::cout << line << "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  std::cout << line << "\n\n" << std::flush;
}

void DemoStage::show(const Words& words) {
  if (pauses_) {
    std::cout << "[Enter: " << as_typed(words) << "] " << std::flush;
    std::string answer;
    if (!std::getline(std::cin, answer)) pauses_ = false;
  }
  std::cout << "$ " << as_typed(words) << "\n" << std::flush;
}

void DemoStage::run(const Words& words, int expected) {
  show(words);
  const CommandResult result = run_own(words);
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) std::cout << (line.empty() ? "" : "  ") << line << "\n";
  std::cout << "\n" << std::flush;
  if (result.exit_code == expected) return;
  throw Error(fmt::format("`{}` ended with {}; the demo ends here", as_typed(words), result.exit_code));
}

std::string DemoStage::ask(const Words& words) {
  show(words);
  const CommandResult result = run_own(words);
  if (result.exit_code == 0) return result.output;
  throw Error(fmt::format("`{}` ended with {}; the demo ends here", as_typed(words), result.exit_code));
}

void DemoStage::bars(const std::vector<Bar>& bars) {
  constexpr double kLongest = 40;
  std::size_t widest = 0;
  double most = 0;
  for (const Bar& bar : bars) {
    widest = std::max(widest, bar.name.size());
    most = std::max(most, bar.value);
  }
  for (const Bar& bar : bars) {
    std::string blocks;
    for (int i = 0; i < std::lround(kLongest * bar.value / most); ++i) blocks += "█";
    std::cout << fmt::format("  {:<{}}  {} {}\n", bar.name, widest, blocks, bar.label);
  }
  std::cout << "\n" << std::flush;
}

std::string DemoStage::text() {
  const std::string path = file("text.txt");
  if (std::filesystem::exists(path)) return path;
  std::string all;
  for (const char* command : {"schedule", "check", "simulate", "search", "model", "plan", "tokenize", "train"}) {
    all += run_own({command, "--help"}).output;
  }
  write_whole(path, all);
  return path;
}

}  // namespace chimera::apps

#include "plan_run.h"

#include <fmt/format.h>

#include "core/console.h"
#include "core/error.h"

#ifdef CHIMERA_WITH_TORCH
#include "bench/contest.h"
#include "bench/random_letters.h"
#include "train_options.h"
#endif

namespace chimera::apps {

#ifdef CHIMERA_WITH_TORCH

std::vector<double> measured_steps(const std::vector<std::vector<std::string>>& runs, const std::string& data) {
  const TemporaryFolder folder;
  // Step times do not depend on the letters, only on their number.
  std::string text = data;
  if (text.empty()) write_random_letters(text = folder.file("text.txt"));
  std::vector<Contender> contenders;
  for (std::vector<std::string> words : runs) {
    words.insert(words.end(), {"--data", text, "--steps", "8"});
    contenders.push_back(training_contender(fmt::format("run {}", contenders.size() + 1), words));
  }
  std::vector<double> seconds;
  for (const Score& score : run_contest(contenders, {.rounds = 3}, [](const auto& text) { messages().write(text); })) {
    seconds.push_back(spread_of(score.step_seconds).median);
  }
  return seconds;
}

#else

std::vector<double> measured_steps(const std::vector<std::vector<std::string>>&, const std::string&) {
  throw ConfigError("--run trains, and this program was built without LibTorch; leave it out");
}

#endif

}  // namespace chimera::apps

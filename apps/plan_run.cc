#include "plan_run.h"

#include "core/console.h"
#include "core/mapped.h"
#include "core/reject.h"

#ifdef CHIMERA_WITH_TORCH
#include "bench/contest.h"
#include "bench/random_letters.h"
#include "train_command_line.h"
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
  const auto scores = run_contest(contenders, {.rounds = 3}, [](const auto& text) { messages().write(text); });
  return mapped(scores, [](const Score& score) { return spread_of(score.step_seconds).median; });
}

#else

std::vector<double> measured_steps(const std::vector<std::vector<std::string>>&, const std::string&) {
  reject("--run trains, and this program was built without LibTorch; leave it out");
}

#endif

}  // namespace chimera::apps

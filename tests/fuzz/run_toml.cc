// Fuzzes the flags of a run in a TOML file (--config).

#include <algorithm>

#include "../apps/config_words.h"
#include "fuzz/fuzzer.h"

namespace chimera::testing {
namespace {

/// One flag of each kind of `chimera train`.
struct Command {
  CLI::App app{"train"};
  std::string text, list;
  std::int64_t number = 0;
  double real = 0;
  bool given = false;
  Command() {
    app.add_option("--schedule", text);
    app.add_option("--stages,-s", number);
    app.add_option("--learning-rate", real);
    app.add_option("--partition", list);
    app.add_flag("--shard-optimizer", given);
    app.add_option("--config", text);
  }
};

void exercise_run(std::string_view bytes) {
  Command command;
  auto words = read_or_refuse([&] { return apps::config_words_of(std::string(bytes), kSource, command.app); });
  if (!words) return;
  require(words->size() <= 5, "a flag is given once");
  require(std::ranges::all_of(*words, [](const std::string& word) { return word.starts_with("--"); }),
          "every word is a flag with its value");
  const bool has_text = std::ranges::any_of(
      *words, [](const std::string& word) { return word.starts_with("--schedule") || word.starts_with("--config"); });
  std::ranges::reverse(*words);
  try {
    command.app.parse(*words);
  } catch (const CLI::ParseError&) {
    return;  // the flag does not accept the value
  }
  require(command.text.empty() || has_text, "a value comes from its key");
}

}  // namespace

const Fuzzer kRunToml("run_toml", exercise_run);

}  // namespace chimera::testing

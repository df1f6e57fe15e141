// Fuzzes the flags of a run in a TOML file (--config).

#include <algorithm>

#include "../apps/flags/config_file.h"
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
  const bool is_accepted = read_or_refuse([&] {
                             try {
                               apps::merge_config_text(command.app, std::string(bytes), kSource);
                               return true;
                             } catch (const CLI::ParseError&) {
                               return false;  // the flag does not accept the value
                             }
                           }).value_or(false);
  if (!is_accepted) return;
  const std::vector<std::string> words = apps::given_arguments(command.app);
  const bool has_schedule = std::ranges::any_of(words, [](const auto& word) { return word.starts_with("--schedule"); });
  require(command.text.empty() || has_schedule, "a value comes from its key");
  Command rank;
  rank.app.parse(std::vector(words.rbegin(), words.rend()));
  require(apps::given_arguments(rank.app) == words, "the words of the flags parse to the same flags");
  require(rank.text == command.text && rank.list == command.list && rank.number == command.number,
          "the words of the flags parse to the same values");
}

}  // namespace

const Fuzzer kRunToml("run_toml", exercise_run);

}  // namespace chimera::testing

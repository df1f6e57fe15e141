// Flags in TOML files, in both directions. merge_config_text() sets the flags of a file as if they had been typed, with
// their own checks, and the command line wins. to_toml() writes the flags of a run to a file that repeats it, and
// given_arguments() writes them as the command line of the ranks.

#include "flags/config_file.h"

#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>

#include "core/choices.h"
#include "core/files.h"
#include "core/json.h"
#include "core/printable.h"
#include "core/reject.h"

namespace chimera::apps {
namespace {

/// Throws ConfigError with file, line and reason.
toml::table parse(const std::string& text, const std::string& path) {
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    reject("{}:{}: {}", path, error.source().begin.line, printable(error.description(), kParserMessage));
  }
}

std::vector<std::string> keys_of(const CLI::App& command) {
  std::vector<std::string> keys;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      // A file cannot name another file of flags.
      if (name != "help" && name != "config" && name != "recipe") keys.push_back(name);
    }
  }
  return keys;
}

/// Returns what separates the values of a list on the command line: commas, or blanks for a mixture of data.
std::string separator_of(const CLI::Option& option) {
  return option.get_delimiter() == '\0' && option.get_items_expected_max() > 1 ? " " : ",";
}

/// Returns nullopt for a flag without value that is false.
std::optional<std::string> value_of(const std::string& key, const toml::node& node, const CLI::Option& option,
                                    const std::string& at) {
  // `true` is also a value, as of --tied; a flag without value is then given or not.
  const bool takes_value = option.get_items_expected_max() > 0;
  if (const auto truth = node.value_exact<bool>())
    return *truth || takes_value ? std::optional(fmt::format("{}", *truth)) : std::nullopt;
  if (!takes_value) reject("{}: '{}' is either true or false", at, key);
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<std::int64_t>()) return fmt::format("{}", *number);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  if (const toml::array* list = node.as_array(); list != nullptr && !list->empty()) {
    std::vector<std::string> values;
    for (const toml::node& each : *list) {
      if (each.is_array()) reject("{}: '{}' has a list in a list", at, key);
      // value_of() returns nullopt for false, which in a list is an ordinary value.
      values.push_back(value_of(key, each, option, at).value_or("false"));
    }
    // The flag's own parser splits the text again, so that a list has the same errors as on the command line.
    return fmt::format("{}", fmt::join(values, separator_of(option)));
  }
  reject("{}: '{}' must be a string, a number, true or false, or a list of them", at, key);
}

/// Our flags, each with names that other programs give it. A name of several flags means the first one that a command
/// has, and then the others.
constexpr std::array<std::pair<const char*, const char*>, 29> kOtherNames = {
    {{"learning-rate", "lr"},
     {"learning-rate-shape", "lr-scheduler-type"},
     {"min-learning-rate", "min-lr"},
     {"warmup", "warmup-steps lr-warmup-steps"},
     {"clip", "max-grad-norm grad-clip clip-grad"},
     {"micro-batch-size", "batch-size per-device-train-batch-size"},
     {"micro-batches", "batch-size global-batch-size gradient-accumulation-steps num-microbatches"},
     {"mini-batch", "batch-size global-batch-size"},
     {"steps", "epochs max-steps train-iters iters"},
     {"sequence", "seq-len seq-length sequence-length context block-size"},
     {"workers", "gpus num-gpus nproc-per-node world-size"},
     {"stages", "gpus num-gpus nproc-per-node world-size pp pipeline-parallel-size pipeline-model-parallel-size depth"},
     {"data-parallel", "gpus num-gpus nproc-per-node world-size dp data-parallel-size"},
     {"tensor-parallel", "tp tensor-model-parallel-size"},
     {"chunks", "virtual-stages"},
     {"dtype", "bf16 fp16 fp32 precision"},
     {"device", "cuda gpu"},
     {"recompute", "gradient-checkpointing activation-checkpointing"},
     {"shard-optimizer", "zero use-distributed-optimizer"},
     {"data", "dataset data-path file"},
     {"checkpoint", "save save-dir output-dir"},
     {"output", "output-dir out"},
     {"save-every", "save-steps save-interval"},
     {"resume", "load"},
     {"from", "load model-path"},
     {"validate-every", "eval-interval eval-steps"},
     {"model", "model-path"},
     {"seconds", "time timeout"},
     {"hang-seconds", "timeout"}}};

/// Returns flags in `known` with the meaning of another program's name, or else the nearest flag.
std::vector<std::string> meant_by(std::string name, const std::vector<std::string>& known) {
  // Python programs spell flags with underscores.
  std::ranges::replace(name, '_', '-');
  std::vector<std::string> meant;
  for (const auto& [flag, others] : kOtherNames) {
    const bool is_meant = fmt::format(" {} ", others).find(fmt::format(" {} ", name)) != std::string::npos;
    if (is_meant && std::ranges::count(known, flag) > 0) meant.emplace_back(flag);
  }
  if (!meant.empty()) return meant;
  if (auto guess = find_nearest(name, known)) meant.push_back(*std::move(guess));
  return meant;
}

}  // namespace

std::string unknown_flag(const CLI::App& command, const std::string& what, const std::string& name) {
  const std::string dashes = what == "flag" ? "--" : "";
  std::vector<std::string> known = keys_of(command);
  if (what == "flag") known.insert(known.end(), {"help", "help-all", "config", "recipe", "version"});
  // A suggestion must be a flag of this very command that its help shows.
  std::erase_if(known, [&](const std::string& flag) {
    const CLI::Option* option = command.get_option_no_throw("--" + flag);
    return option == nullptr || option->get_group().empty();  // absent or hidden
  });
  constexpr std::size_t kLongestName = 64;
  const std::string unknown = fmt::format("unknown {} '{}{}'", what, dashes, printable(name, kLongestName));
  std::vector<std::string> meant = meant_by(name, known);
  if (meant.empty()) return unknown + "; see --help-all";
  for (std::string& flag : meant) flag = fmt::format("'{}{}'", dashes, flag);
  return fmt::format("{}; did you mean {}?", unknown, fmt::join(meant, " or "));
}

void set_flag(CLI::App& command, const std::string& name, const std::string& value) {
  CLI::Option& option = *command.get_option("--" + name);
  option.clear();
  option.add_result(value);
  option.run_callback();
}

void merge_config_text(CLI::App& command, const std::string& text, const std::string& path) {
  const std::vector<std::string> keys = keys_of(command);
  for (const auto& [name, node] : parse(text, path)) {
    const std::string key(name.str());
    const std::string at = fmt::format("{}:{}", path, node.source().begin.line);
    if (key == "report-stragglers") reject("{}: '{}' is now `chimera diagnose`", at, key);
    if (node.is_table() || node.is_array_of_tables())
      reject("{}: [{}] is a section, and flags have none; write `steps = 4`, before any section", at, key);
    if (std::ranges::count(keys, key) == 0) reject("{}: {}", at, unknown_flag(command, "key", key));
    const CLI::Option& option = *command.get_option("--" + key);
    const auto value = value_of(key, node, option, at);
    // The command line takes precedence.
    if (value && option.count() == 0) set_flag(command, key, *value);
  }
}

void merge_config(CLI::App& command, const std::string& path) { merge_config_text(command, read_whole(path), path); }

std::vector<std::string> given_arguments(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    // The first long name: a flag may have others, as --config and --recipe.
    const std::string flag = "--" + option->get_lnames().front();
    const std::string value = fmt::format("{}", fmt::join(option->reduced_results(), separator_of(*option)));
    if (value.empty())
      words.insert(words.end(), {flag, value});  // `--flag=` would take the next word
    else
      words.push_back(fmt::format("{}={}", flag, value));
  }
  return words;
}

std::string to_toml(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    const std::string& name = option->get_lnames().front();
    if (option->count() == 0 || name == "dry-run" || name == "format") continue;
    const std::string value = fmt::format("{}", fmt::join(option->reduced_results(), separator_of(*option)));
    const auto is_number = [&](auto number) { return number && fmt::format("{}", *number) == value; };
    const bool is_bare = option->get_items_expected_max() == 0 || is_number(parse_number<std::int64_t>(value)) ||
                         is_number(parse_number<double>(value));
    text += fmt::format("{} = {}\n", name, is_bare ? value : json_text(nlohmann::json(value)));
  }
  return text;
}

}  // namespace chimera::apps

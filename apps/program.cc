// run_program() is main() with and without the library of the training half. It decides who this process is (a rank of
// our launcher, a process of another launcher, or the user's own), parses the command line, and turns every error into
// one line and an exit code. Refusals of CLI11 are replaced by our own where they would be misleading, such as "a
// subcommand is required" for a misspelled one.

#include "program.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <span>
#include <thread>

#include "build_information.h"
#include "core/complete_name.h"
#include "core/console.h"
#include "core/fault_point.h"
#include "core/files.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "core/shell_words.h"
#include "flags/config_file.h"
#include "flags/values.h"
#include "help.h"
#include "launch/local/launcher.h"
#include "launch/local/place.h"

namespace chimera::apps {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  chimera schedule chimera --stages 4 --micro-batches 4\n"
    "  chimera simulate chimera --stages 8 --micro-batches 8 --forward 1 --backward 2\n"
    "  chimera train --model gpt2-mini --data book.txt --steps 100\n"
    "\n`chimera SUBCOMMAND --help` describes a subcommand, and `chimera completion bash` (zsh, fish) prints "
    "completions. Results go to standard output, messages to standard error.\n"
    "\nExit codes: 0 success; 1 the answer is no (an invalid schedule), or a run failed; 2 wrong usage or "
    "configuration; 3 a rank ended because another one did; 75 a signal ended a training run, which has saved; 130 "
    "Ctrl-C; 143 SIGTERM.\n"
    "\nMore: docs/tutorial.md, docs/choosing.md";

// In the order of suggestions and completions; help.cc groups them for --help.
constexpr std::array kCommands = {add_schedules,  add_schedule,   add_check,      add_simulate, add_search,
                                  add_model,      add_plan,       add_playground, add_tokenize, add_tokenizer,
                                  add_checkpoint, add_diagnose,   add_env,        add_launch,   add_top,
                                  add_compare,    add_completion, add_sweep,      add_demo,     add_reference};

// The innermost subcommand that has been parsed: `chimera checkpoint list` for its words.
const CLI::App& chosen_command(const CLI::App& program) {
  const auto chosen = program.get_subcommands();
  return chosen.empty() ? program : chosen_command(*chosen.front());
}

std::string help_of(const CLI::App& command) { return fmt::format("`{} --help`", full_command_name(command)); }

std::string unexpected(const CLI::App& command, const std::string& word) {
  constexpr std::string_view kDashes = "--";
  if (!word.starts_with(kDashes)) return fmt::format("unexpected argument '{}'; see {}", word, help_of(command));
  return unknown_flag(command, "flag", word.substr(kDashes.size(), word.find('=') - kDashes.size()));
}

/// A subcommand, or a word of one, that another has replaced.
struct ReplacedWord {
  std::string_view command;
  std::string_view word;  // flag or subcommand; empty: the whole command
  std::string_view now;
};
constexpr std::array kReplaced = {ReplacedWord{"best", "", "chimera sweep"},
                                  ReplacedWord{"tour", "", "chimera demo"},
                                  ReplacedWord{"checkpoint", "convert", "chimera export"},
                                  ReplacedWord{"train", "--schedule-file", "chimera train --schedule"},
                                  ReplacedWord{"train", "--meeting-seconds", "chimera train --rendezvous-seconds"},
                                  ReplacedWord{"train", "--report-stragglers", "chimera diagnose"},
                                  ReplacedWord{"bench", "--validate", "build/benchmarks/validate"},
                                  ReplacedWord{"plan", "--fit", "build/benchmarks/fit --runs FILE"},
                                  ReplacedWord{"simulate", "--schedules", "chimera sweep --schedules"}};

/// Throws ConfigError, with the new word, if the command line has a replaced one.
void require_current_words(const std::vector<std::string>& arguments) {
  const auto is_used = [&](std::string_view word) {
    return std::ranges::any_of(arguments, [&](std::string_view argument) {
      return argument == word || (argument.starts_with(word) && argument.substr(word.size()).starts_with('='));
    });
  };
  for (const ReplacedWord& replaced : kReplaced) {
    if (arguments.front() != replaced.command || (!replaced.word.empty() && !is_used(replaced.word))) continue;
    reject("`chimera {}{}{}` is now `{}`", replaced.command, replaced.word.empty() ? "" : " ", replaced.word,
           replaced.now);
  }
}

/// Replaces control characters, which file names may contain.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return text;
}

/// A rank sends the error to its launcher.
int fail(const Invocation& invocation, const std::string& message, ExitCode code, bool is_own = false) {
  // All ranks of a job would print the same error. A rank of `chimera` sends it to its launcher, which prints it once.
  // Ranks of another launcher print a usage error once per host, but each prints an error in its own place. Silent
  // ranks exit later, because launchers kill the other ranks when one fails.
  if (invocation.rank) {
    report_failure({.op = "start-up", .message = message, .usage = code == ExitCode::Usage});
  } else if (!invocation.place || invocation.place->rank == 0) {
    std::cerr << fmt::format("chimera: {}\n", one_line(message)) << std::flush;
  } else if (invocation.place->local_rank == 0 || code != ExitCode::Usage || is_own) {
    std::cerr << fmt::format("chimera: rank {}: {}\n", invocation.place->rank, one_line(message)) << std::flush;
  } else {
    signal(SIGTERM, [](int) { _exit(static_cast<int>(ExitCode::Usage)); });
    // By then the rank that prints has done so, and its launcher ends this one by SIGTERM, which is no error here.
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  return static_cast<int>(code);
}

/// On failure, reports to the launcher and exits.
std::optional<RankEnvironment> join_launcher() {
  try {
    return rank_environment();
  } catch (const ConfigError&) {
    throw;  // the launcher's variables are invalid: no launcher to report to
  } catch (const std::exception& error) {
    report_failure({.op = "start", .message = error.what()});
    exit_now(static_cast<int>(ExitCode::No), kDrainAfterFailure);
  }
}

/// Only training subcommands have a place among several processes of another launcher.
std::optional<RankPlace> place_among_others(const std::vector<std::string>& arguments) {
  const auto is_command = [&](const CommandName& command) { return arguments.front() == command.name; };
  if (arguments.empty() || std::ranges::none_of(kTrainingCommands, is_command)) return std::nullopt;
  auto place = find_place(own_variables());
  return place && place->world_size > 1 ? place : std::nullopt;
}

void require_fitting_place(const RankPlace& place, const std::vector<std::string>& arguments) {
  if (!place.conflict.empty()) throw ConfigError(place.conflict);
  if (arguments.front() == kTrain.name || measures_between_hosts(arguments)) return;
  reject("{} has started {} processes, and `chimera {}` starts its own; start one", to_text(place.launcher),
         place.world_size, arguments.front());
}

/// Throws ConfigError for a missing or unknown subcommand below `command`, the word before `words`.
void require_subcommand(const CLI::App& command, std::span<char*> words) {
  const auto all = command.get_subcommands([](const CLI::App*) { return true; });
  const auto names = mapped(all, [](const CLI::App* each) { return each->get_name(); });
  if (names.empty()) return;
  if (words.empty()) reject("`{}` needs a subcommand: {}", full_command_name(command), fmt::join(names, ", "));
  const std::string word = words.front();
  if (word.starts_with('-')) return;
  if (std::ranges::count(names, word) == 0) throw ConfigError(unknown_name("subcommand", word, names));
  require_subcommand(*command.get_subcommand(word), words.subspan(1));
}

int parse_and_run(CLI::App& program, int argc, char** argv) {
  if (argc < 2) {
    set_up_help(program, STDERR_FILENO);
    std::cerr << program.help();
    return static_cast<int>(ExitCode::Usage);
  }
  const std::string first = argv[1];
  // Words that have been replaced are refused before CLI11 can call them unknown.
  require_current_words({argv + 1, argv + argc});
  // A flag before the subcommand is the program's own; all others come after it.
  const bool of_program = first == "-h" || first == "--help" || first == "--help-all" || first == "--version";
  if (!of_program && first.starts_with('-')) throw ConfigError(unexpected(program, first));
  // CLI11 reports an unknown subcommand as an extra argument, or only that one is missing.
  require_subcommand(program, std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& help) {
    // --help, --help-all and --version arrive as exceptions.
    return program.exit(help);
  } catch (const CLI::ExtrasError&) {
    const auto words = program.remaining(true);
    throw ConfigError(unexpected(chosen_command(program), words.empty() ? "" : words.front()));
  } catch (const CLI::ParseError& error) {
    reject("{}; see {}", error.what(), help_of(chosen_command(program)));
  }
  return 0;
}

std::string named_file(const char* what, const std::string& word, const std::string& any) {
  namespace fs = std::filesystem;
  const fs::path path = word;
  const std::string ending = fs::path(any).extension().string();
  const bool is_path = word.find('/') != std::string::npos || word.ends_with(ending);
  if (word == "-" || (is_path ? path_exists(path) : is_file(path))) return word;
  // Some other path that does not exist: whoever opens it says so.
  if (is_path && path.parent_path() != fs::path(any).parent_path()) return word;
  const fs::path folder = fs::path(shipped_file(any)).parent_path();
  if (is_path) {  // machines/x.json of the source tree, from another folder
    const fs::path shipped = folder / path.filename();
    return path_exists(shipped) ? shipped.string() : word;
  }
  const std::vector<std::string> names = shipped_names(any);
  const std::string name = complete_name(word, names);
  if (std::ranges::count(names, name) > 0) return (folder / (name + ending)).string();
  throw ConfigError(unknown_name(what, word, names));
}

}  // namespace

CommandResult run_this_program(const std::vector<std::string>& words) {
  // `exec` replaces the shell, so the exit status, and a signal that ends the command, are those of the command itself.
  const std::string line = fmt::format("exec {} {}", shell_word(own_executable()), shell_words(words));
  std::FILE* pipe = ::popen(line.c_str(), "re");
  if (pipe == nullptr) throw Error(fmt::format("cannot start `{}`: {}", shell_command(words), system_message(errno)));
  CommandResult result;
  std::array<char, 4096> buffer;
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe))
    result.output.append(buffer.data(), count);
  // popen() reads standard output only; standard error stays that of this process.
  const int status = ::pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string shell_command(const std::vector<std::string>& words) {
  return words.empty() ? "chimera" : "chimera " + shell_words(words);
}

std::string training_command(const std::vector<std::string>& words) {
  return fmt::format("{} train {} --metrics \"$CHIMERA_METRICS\"", shell_word(own_executable()), shell_words(words));
}

std::string shipped_file(const std::string& name) {
  namespace fs = std::filesystem;
  // Candidates, in this order: an installed program (PREFIX/bin, with data in PREFIX/share/chimera), a program in a
  // build folder of the sources, one in a folder below the build folder, one that a wheel brings beside the package,
  // and completions that the build has written.
  const fs::path folder = fs::path(own_executable()).parent_path();
  for (const fs::path& file : {folder.parent_path() / CHIMERA_DATA_FOLDER / name, folder.parent_path() / name,
                               folder.parent_path().parent_path() / name, folder.parent_path() / "chimerapipe" / name,
                               folder / "reference" / name})
    if (fs::is_regular_file(file)) return file.string();
  reject("{} does not exist; install the program again, or run it in the folder of its build", name);
}

std::vector<std::string> shipped_names(const std::string& any) {
  const std::filesystem::path one = shipped_file(any);
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(one.parent_path()))
    if (file.path().extension() == one.extension()) names.push_back(file.path().stem().string());
  // A folder lists its files in any order.
  std::ranges::sort(names);
  return names;
}

std::string machine_file(const std::string& word) { return named_file("machine profile", word, kAMachine); }

std::string recipe_file(const std::string& word) { return named_file("recipe", word, kARecipe); }

std::string record_file(const std::string& word) { return named_file("record", word, kARecord); }

int run_program(int argc, char** argv, AddCommand& add_training, ProgramEntry entry) {
  // The default would end the process without a message.
  ::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit on file sizes then fails like one to a full disk
  CLI::App program("Chimera: train large models with bidirectional pipelines", "chimera");
  program.footer(kFooter);
  program.set_help_flag("-h,--help", "print help and exit");
  program.set_help_all_flag("--help-all", "print all flags and exit");
  program.set_version_flag("--version", build_information(), "print version and build, and exit");
  program.require_subcommand(1);
  int exit_code = 0;
  Invocation invocation;
  for (AddCommand* const add : kCommands) add(program, invocation, exit_code);
  add_training(program, invocation, exit_code);
  set_up_help(program, STDOUT_FILENO);
  // All errors end here as one line and an exit code: 2 for what the user wrote, 1 for what failed.
  const auto run = [&] {
    try {
      check_fault_plan();
      invocation = {.arguments = {argv + 1, argv + argc}, .rank = join_launcher(), .place = {}, .entry = entry};
      invocation.place = place_among_others(invocation.arguments);
      if (invocation.place) require_fitting_place(*invocation.place, invocation.arguments);
      const int code = parse_and_run(program, argc, argv);
      // Also of what commands print without a check, such as help. Training writes to output(), whose reader may be
      // gone.
      if (!(std::cout << std::flush)) throw Error("standard output cannot be written");
      return code != 0 ? code : exit_code;
    } catch (const PlaceError& error) {
      return fail(invocation, error.what(), ExitCode::Usage, true);
    } catch (const ConfigError& error) {
      return fail(invocation, error.what(), ExitCode::Usage);
    } catch (const std::bad_alloc&) {
      return fail(invocation, "out of memory; use fewer stages or micro-batches", ExitCode::No);
    } catch (const std::exception& error) {
      return fail(invocation, error.what(), ExitCode::No);
    }
  };
  const int code = run();
  // Connection threads of a failed rank may still run, so destructors must not.
  if (invocation.rank && code != 0) exit_now(code, kDrainAfterFailure);
  messages().drain(code == 0 ? kDrainAfterSuccess : kDrainAfterFailure);
  return code;
}

}  // namespace chimera::apps

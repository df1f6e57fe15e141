#pragma once

// The subcommands of `chimera`. Each add_ function adds one subcommand to the parser: its flags (flags/), its help, and
// a callback that runs it and sets `exit_code`. run_program() (program.h) calls these functions and then parses the
// command line. Each function has a source of its own: add_train() is in train.cc. The executable contains only the
// commands that need no LibTorch; the others (kTrainingCommands) are in a shared library that it loads on demand
// (training_half.h).

#include <CLI/CLI.hpp>

#include <algorithm>

#include "launch/local/place.h"
#include "launch/local/process.h"
#include "launch/local/rank.h"

namespace chimera::apps {

/// How this process was started. A job consists of several processes, its ranks, if a launcher starts it.
struct Invocation {
  std::vector<std::string> arguments;  // argv[1..]
  // Set if the launcher of chimera (launch/local/launcher.h) started this process as a rank
  std::optional<RankEnvironment> rank;
  std::optional<RankPlace> place;  // set if another launcher, such as torchrun, started several processes
  ProgramEntry entry = nullptr;    // function that forked ranks call instead of main(); null: ranks start by exec
};

/// A subcommand as `chimera --help` lists it.
struct CommandName {
  const char* name;
  const char* description;
};

// Subcommands that need LibTorch
inline constexpr CommandName kTrain{"train", "Train a model through a pipeline schedule"};
inline constexpr CommandName kProfile{"profile", "Measure a machine profile for the planner"};
inline constexpr CommandName kBench{"bench", "Compare the speed of training runs"};
inline constexpr CommandName kExport{"export", "Write a run, checkpoint or folder as a folder for transformers"};
inline constexpr CommandName kEvaluate{"evaluate", "Compute the loss and perplexity of a model on a file"};
inline constexpr CommandName kGenerate{"generate", "Continue texts with a model"};
/// Name of the hidden command that prints all commands and flags as JSON. It needs LibTorch, because it lists the flags
/// of kTrainingCommands, too.
inline constexpr const char* kReference = "reference";
inline constexpr std::array kTrainingCommands{kTrain, kProfile, kBench, kExport, kEvaluate, kGenerate};

/// Hidden flag of `profile`: two ranks on two hosts measure the link between these hosts, and nothing else.
inline constexpr const char* kLinksFlag = "--links";

/// Returns whether the command line `words` (without `chimera`) is a `profile` with --between or --links: it measures
/// the links between two hosts. Only then may `profile` run as several ranks, which `chimera launch` starts on these
/// hosts.
[[nodiscard]] inline bool measures_between_hosts(const std::vector<std::string>& words) {
  const auto is_flag = [](const std::string& word) {
    return word == kLinksFlag || word == "--between" || word.starts_with("--between=");
  };
  return !words.empty() && words.front() == kProfile.name && std::ranges::any_of(words, is_flag);
}

/// Adds a subcommand to `program`. `exit_code` and `invocation` must outlive the parsing.
using AddCommand = void(CLI::App& program, const Invocation& invocation, int& exit_code);
AddCommand add_schedules, add_schedule, add_check, add_simulate, add_search, add_model, add_plan, add_playground;
AddCommand add_tokenize, add_tokenizer, add_checkpoint, add_diagnose, add_env, add_launch, add_top, add_compare;
AddCommand add_completion, add_sweep, add_demo, add_reference;
AddCommand add_train, add_profile, add_bench, add_export, add_evaluate, add_generate;

}  // namespace chimera::apps

#include "training_half.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "launch/local/launcher.h"
#include "launch/local/process.h"

namespace chimera::apps {
namespace {

constexpr const char* kLibrary = "libchimera_training.so";

std::filesystem::path library_path() {
  const std::filesystem::path folder = std::filesystem::path(own_executable()).parent_path();
  // In a build both are in one folder; installed, the library is below PREFIX/lib.
  std::filesystem::path beside = folder / kLibrary;
  if (exists(beside)) return beside;
  return folder.parent_path() / CHIMERA_LIBRARY_FOLDER / kLibrary;
}

bool saves_checkpoints(const std::vector<std::string>& arguments) {
  const auto says_so = [](const std::string& word) {
    return word == "--checkpoint" || word.starts_with("--checkpoint=");
  };
  return arguments.front() == "train" && std::ranges::any_of(arguments, says_so);
}

void end_with_nothing_to_save(int /*signal*/) { ::_exit(static_cast<int>(kSavedExit)); }

/// Handles these signals until the run does; before it starts, there is nothing to save.
void take_early_signals() {
  for (const int signal : kSavingSignals) {
    // signal() returns what was set before: a signal that has been ignored stays so.
    if (::signal(signal, end_with_nothing_to_save) == SIG_IGN) ::signal(signal, SIG_IGN);  // nohup
  }
}

/// Spinning OpenMP threads take cores from the threads they wait for if other programs run. Must be called before
/// OpenMP is loaded.
void let_waiting_threads_sleep() { ::setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0); }

}  // namespace

bool needs_training_half(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return false;
  const auto is_first = [&](const CommandName& command) { return arguments.front() == command.name; };
  return arguments.front() == kReference || std::ranges::any_of(kTrainingCommands, is_first);
}

void list_training_commands(CLI::App& program, const Invocation&, int&) {
  for (const CommandName& command : kTrainingCommands) program.add_subcommand(command.name, command.description);
}

int run_training_half(int argc, char** argv) {
  // Signals that make a run save may arrive while LibTorch loads, which takes half a second.
  if (saves_checkpoints({argv + 1, argv + argc})) take_early_signals();
  let_waiting_threads_sleep();
  // RTLD_LAZY: LibTorch has hundreds of thousands of symbols, and a command uses few of them.
  const std::string path = library_path().string();
  // Never closed: its threads and exit handlers live as long as the process.
  void* library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  void* entry = library == nullptr ? nullptr : ::dlsym(library, "chimera_training_main");
  if (entry == nullptr) {
    rlimit space{};
    const bool is_limited = ::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
    std::cerr << fmt::format("chimera: `{}` needs the library of the training half: {}; {}\n", argv[1], ::dlerror(),
                             is_limited
                                 ? fmt::format("a process may have {} MiB (ulimit -v): raise it", space.rlim_cur >> 20)
                                 : "build or install it anew")
              << std::flush;
    return 1;
  }
  return reinterpret_cast<int (*)(int, char**)>(entry)(argc, argv);
}

}  // namespace chimera::apps

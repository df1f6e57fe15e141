// The program without LibTorch, which starts in milliseconds. Subcommands that need LibTorch are in a library loaded on
// demand.

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/console.h"
#include "program.h"
#ifdef CHIMERA_WITH_TORCH
#include "training_half.h"
#endif

namespace {

/// Returns the arguments with the usual words for help and version as flags: `help train` as `train --help`.
std::vector<char*> with_flags(std::vector<char*> words) {
  static char help[] = "--help";
  static char version[] = "--version";
  const std::string_view first = words.size() > 1 ? words[1] : "";
  if (first == "version" || first == "-v" || first == "-V") words[1] = version;
  if (first == "help") {
    std::rotate(words.begin() + 1, words.begin() + 2, words.end());
    words.back() = help;
  }
  return words;
}

}  // namespace

int main(int argument_count, char** arguments) {
  using namespace chimera::apps;
  chimera::open_missing_standard_streams();
  std::vector<char*> words = with_flags({arguments, arguments + argument_count});
  const int argc = static_cast<int>(words.size());
  words.push_back(nullptr);
  char** const argv = words.data();
#ifdef CHIMERA_WITH_TORCH
  // Decided by words alone, before anything is parsed. The library has a complete program of its own.
  if (needs_training_half({argv + 1, argv + argc})) return run_training_half(argc, argv);
  return run_program(argc, argv, list_training_commands);
#else
  return run_program(argc, argv, [](CLI::App&, const Invocation&, int&) {});
#endif
}

// The program without LibTorch, which starts in milliseconds. Subcommands that need LibTorch are in a library loaded on
// demand.

#include "core/console.h"
#include "program.h"
#ifdef CHIMERA_WITH_TORCH
#include "training_half.h"
#endif

int main(int argc, char** argv) {
  using namespace chimera::apps;
  chimera::open_missing_standard_streams();
#ifdef CHIMERA_WITH_TORCH
  if (needs_training_half({argv + 1, argv + argc})) return run_training_half(argc, argv);
  return run_program(argc, argv, [](CLI::App& program, const Invocation&, int&) { list_training_commands(program); });
#else
  return run_program(argc, argv, [](CLI::App&, const Invocation&, int&) {});
#endif
}

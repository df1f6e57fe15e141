// chimera: the program in front, which starts in milliseconds as it knows nothing of LibTorch. What needs LibTorch is
// in a library that is loaded when a subcommand asks for it.

#include "core/console.h"
#include "program.h"
#ifdef CHIMERA_WITH_TORCH
#include "training_half.h"
#endif

int main(int argc, char** argv) {
  using namespace chimera::apps;
  chimera::keep_standard_descriptors();
#ifdef CHIMERA_WITH_TORCH
  if (needs_training_half({argv + 1, argv + argc})) return run_training_half(argc, argv);
  return run_program(argc, argv, [](CLI::App& program, const Invocation&, int&) { list_training_commands(program); });
#else
  return run_program(argc, argv, [](CLI::App&, const Invocation&, int&) {});
#endif
}

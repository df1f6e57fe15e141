// The entry of libchimera_training.so: the whole program, the subcommands that need LibTorch included.

#include "program.h"

extern "C" int chimera_training_main(int argc, char** argv) {
  using namespace chimera::apps;
  return run_program(argc, argv, [](CLI::App& program, const Invocation& invocation, int& exit_code) {
    add_train(program, invocation, exit_code);
    add_profile(program, invocation, exit_code);
    add_bench(program, invocation, exit_code);
    add_export(program, invocation, exit_code);
    add_evaluate(program, invocation, exit_code);
    add_generate(program, invocation, exit_code);
  });
}

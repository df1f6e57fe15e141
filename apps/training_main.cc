// Entry of libchimera_training.so: the program with all subcommands.

#include "core/console.h"
#include "program.h"

namespace chimera::apps {
namespace {

void add_training(CLI::App& program, const Invocation& invocation, int& exit_code) {
  add_train(program, invocation, exit_code);
  add_profile(program, invocation, exit_code);
  add_bench(program, exit_code);
  add_export(program, invocation, exit_code);
  add_evaluate(program, invocation, exit_code);
  add_generate(program, invocation, exit_code);
}

}  // namespace
}  // namespace chimera::apps

extern "C" int chimera_training_main(int argc, char** argv) {
  const int code = chimera::apps::run_program(argc, argv, chimera::apps::add_training, chimera_training_main);
#ifdef CHIMERA_SANITIZED
  return code;  // the leak checker runs at exit
#else
  chimera::exit_now(code,
                    chimera::kDrainAfterFailure);  // LibTorch takes longer to unregister its operators than to start
#endif
}

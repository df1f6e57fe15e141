// Entry of libchimera_training.so: the program with all subcommands.

#include "core/console.h"
#include "program.h"

namespace chimera::apps {
namespace {

void add_training(CLI::App& program, const Invocation& invocation, int& exit_code) {
  for (AddCommand* const add : {add_train, add_profile, add_bench, add_export, add_evaluate, add_generate})
    add(program, invocation, exit_code);
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

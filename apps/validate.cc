#include "validate.h"

#include <iostream>

#include "bench/machine.h"
#include "launch/launcher.h"
#include "options.h"

namespace chimera::apps {

void run_validation(ValidationOptions options, const std::string& format, const std::string& output) {
  options.program = own_executable();
  const auto say = [](const std::string& words) { std::cerr << words << std::flush; };
  const auto runs = validate(options, predict_run, say);
  write_output(output, format == "json" ? to_json(runs, machine_line()) : to_text(runs, machine_line()));
}

}  // namespace chimera::apps

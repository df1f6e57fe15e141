#include "engine/optimizer_options.h"

#include <fmt/format.h>

#include <utility>

namespace chimera {

std::string fault_of(const OptimizerOptions& options) {
  for (const auto& [name, beta] : {std::pair("beta1", options.beta1), std::pair("beta2", options.beta2)}) {
    if (!(beta >= 0 && beta < 1)) return fmt::format("{} must be at least 0 and below 1, not {:g}", name, beta);
  }
  if (!(options.epsilon > 0)) return fmt::format("epsilon must be above 0, not {:g}", options.epsilon);
  return "";
}

}  // namespace chimera

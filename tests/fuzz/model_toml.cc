// Fuzzes a model in a TOML file.

#include "fuzz/fuzzer.h"
#include "model_config/config.h"
#include "model_config/parameters.h"

namespace chimera::testing {
namespace {

void exercise_model(std::string_view bytes) {
  const auto model = read_or_refuse([&] { return model_from_toml(std::string(bytes), kSource); });
  if (!model) return;
  require_valid(*model);
  require(parameter_count(*model) > 0, "every model has parameters");
  require(parameter_count(*model) <= 1'000'000'000'000'000, "no model has more than 10^15 parameters");
}

}  // namespace

const Fuzzer kModelToml("model_toml", exercise_model);

}  // namespace chimera::testing

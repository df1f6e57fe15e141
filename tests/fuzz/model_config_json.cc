// Fuzzes the config.json of a Hugging Face folder.

#include "fuzz/fuzzer.h"
#include "hugging_face/config_json.h"
#include "model_config/parameters.h"

namespace chimera::testing {
namespace {

void exercise_config_json(std::string_view bytes) {
  const std::string text(bytes);
  const auto model = read_or_refuse([&] { return model_from_config_json(text, kSource, "model"); });
  if (!model) return;
  require_valid(*model);
  require(parameter_count(*model) > 0, "every model has parameters");
  const std::string other = with_element_type(text, ElementType::BF16);
  require(model_from_config_json(other, kSource, "model") == *model, "the type of tensors changes no model");
  require(!to_config_json(*model, ElementType::F32).empty(), "what a class has can be written");
}

}  // namespace

const Fuzzer kModelConfigJson("model_config_json", exercise_config_json);

}  // namespace chimera::testing

#include "model_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "options.h"

namespace chimera::apps {

void ModelFlags::add_to(CLI::App& app) {
  layers_option = add_count(app, "--layers", layers, "number of transformer blocks; overrides the model");
  hidden_option =
      add_count(app, "--hidden", hidden,
                "hidden size; overrides the model. The feed-forward size becomes 4 times this size (Llama: 3 times)");
  heads_option = add_count(app, "--heads", heads, "number of attention heads; overrides the model");
  key_value_heads_option = add_count(app, "--key-value-heads", key_value_heads,
                                     "number of key and value heads (grouped-query attention; Llama only)");
  vocabulary_option = add_count(app, "--vocabulary", vocabulary, "vocabulary size; overrides the model");
  add_word(
      app, "--tied", {"true", "false"}, [this](const std::string& word) { tied = word == "true"; },
      "whether head and token embedding share one matrix; overrides the model");
}

ModelOverrides ModelFlags::overrides() const {
  ModelOverrides overrides;
  if (layers_option->count() > 0) overrides.layers = layers;
  if (hidden_option->count() > 0) overrides.hidden = hidden;
  if (heads_option->count() > 0) overrides.heads = heads;
  if (key_value_heads_option->count() > 0) overrides.key_value_heads = key_value_heads;
  if (vocabulary_option->count() > 0) overrides.vocabulary = vocabulary;
  overrides.tied = tied;
  return overrides;
}

std::string listed_models() { return fmt::format("{}", fmt::join(preset_names(), ", ")); }

}  // namespace chimera::apps

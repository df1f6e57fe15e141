#include "model_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "options.h"

namespace chimera::apps {

void ModelFlags::add_to(CLI::App& app) {
  layers_option = add_count(app, "--layers", layers, "transformer blocks, instead of the model's");
  hidden_option = add_count(app, "--hidden", hidden, "width, likewise; feed-forward becomes 4 times that");
  heads_option = add_count(app, "--heads", heads, "attention heads, likewise");
  vocabulary_option = add_count(app, "--vocabulary", vocabulary, "token ids, likewise");
  add_word(
      app, "--tied", {"true", "false"}, [this](const std::string& word) { tied = word == "true"; },
      "whether the head is the token embedding, likewise");
}

ModelOverrides ModelFlags::overrides() const {
  ModelOverrides overrides;
  if (layers_option->count() > 0) overrides.layers = layers;
  if (hidden_option->count() > 0) overrides.hidden = hidden;
  if (heads_option->count() > 0) overrides.heads = heads;
  if (vocabulary_option->count() > 0) overrides.vocabulary = vocabulary;
  overrides.tied = tied;
  return overrides;
}

std::string listed_models() { return fmt::format("{}", fmt::join(preset_names(), ", ")); }

}  // namespace chimera::apps

#include "flags/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "flags/values.h"
#include "hugging_face/config_json.h"
#include "hugging_face/export_plan.h"

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

CLI::Option* add_element_type(CLI::App& app, const std::string& flag, std::string& word,
                              const std::string& description) {
  const auto take = [&word, flag](const std::string& given) {
    (void)element_type_of_word(flag, given);
    word = given;
  };
  return add_word(app, flag, element_type_names(), take, description);
}

CLI::Option* add_shard_size(CLI::App& app, const std::string& flag, std::uint64_t& bytes) {
  return app
      .add_option_function<std::string>(
          flag, [&bytes, flag](const std::string& text) { bytes = parse_bytes(flag, text); },
          "maximum bytes of tensors per file, such as 300MB (default 5GB)")
      ->type_name("SIZE");
}

void add_partition(CLI::App& app, PartitionChoice& partition) {
  app.add_option_function<std::string>(
         "--partition", [&partition](const std::string& text) { partition = parse_partition(text); },
         "how layers are distributed over stages: even; balanced, which minimizes the FLOPs of the slowest worker; or "
         "blocks per stage such as 8,9,9,6 (default even)")
      ->type_name("CUT");
}

std::string listed_models() { return fmt::format("{}", fmt::join(preset_names(), ", ")); }

}  // namespace chimera::apps

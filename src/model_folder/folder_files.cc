#include "model_folder/folder_files.h"

#include <filesystem>

#include "model_folder/config_json.h"
#include "model_folder/stored_names.h"

namespace chimera {
namespace {

constexpr const char* kGenerationConfig = "generation_config.json";

}  // namespace

std::vector<TensorEntry> exported_tensors(const ModelConfig& model, ElementType type) {
  std::vector<TensorEntry> tensors;
  for (const ParameterSpec& parameter : all_parameters(model)) {
    for (const std::string& name : exported_names(model, parameter.name)) {
      tensors.push_back({.name = name, .type = type, .shape = parameter.shape});
    }
  }
  return tensors;
}

void add_description(const StagedFolder& folder, const ModelConfig& model, const ModelFolder* source,
                     std::optional<ElementType> type) {
  if (source == nullptr) {
    folder.write(kConfigName, to_config_json(model, type.value_or(ElementType::F32)));
    if (is_causal(model.family)) folder.write(kGenerationConfig, "{\n  \"_from_model_config\": true\n}\n");
    return;
  }
  folder.write(kConfigName, type ? with_element_type(source->config_json(), *type) : source->config_json());
  for (const char* name :
       {kGenerationConfig, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "chat_template.jinja"}) {
    folder.copy_from(source->path(), name);
  }
}

}  // namespace chimera

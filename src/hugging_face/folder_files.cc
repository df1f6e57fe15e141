#include "hugging_face/folder_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "hugging_face/config_json.h"
#include "hugging_face/generation_config.h"
#include "hugging_face/stored_names.h"
#include "tokenizer/byte_tokenizer_json.h"
#include "tokenizer/tokenizer.h"

namespace chimera {
namespace {

constexpr std::size_t kBytesInAll = 256;

/// What transformers opens each kind of file with. It would take the class of the model, which may cut text otherwise.
const std::map<std::string, std::string> kTokenizerClasses = {
    {"tokenizer.json", "PreTrainedTokenizerFast"}, {"vocab.json", "GPT2Tokenizer"}, {"vocab.txt", "BertTokenizer"}};

std::string beside(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

void write_config(const StagedFolder& folder, const nlohmann::ordered_json& config) {
  folder.write(kTokenizerConfig, config.dump(2) + "\n");
}

/// What the model knows besides bytes, from 256 on, by the names that transformers has for them.
std::vector<std::pair<std::string, std::string>> special_tokens(const ModelConfig& model) {
  if (is_causal(model.family)) return {};
  return {{"pad_token", "[PAD]"}, {"cls_token", "[CLS]"}, {"sep_token", "[SEP]"}, {"mask_token", "[MASK]"}};
}

void make_byte_tokenizer(const StagedFolder& folder, const ModelConfig& model) {
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"clean_up_tokenization_spaces", false},
                                   {"model_max_length", model.positions}};
  std::vector<std::string> tokens;
  for (const auto& [name, token] : special_tokens(model)) {
    config[name] = token;
    tokens.push_back(token);
  }
  folder.write("tokenizer.json", byte_tokenizer_json(tokens));
  write_config(folder, config);
}

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
    if (is_causal(model.family)) folder.write(kGenerationConfigName, "{\n  \"_from_model_config\": true\n}\n");
    return;
  }
  folder.write(kConfigName, type ? with_element_type(source->config_json(), *type) : source->config_json());
  folder.copy(beside(source->path(), kGenerationConfigName), kGenerationConfigName);
}

void add_tokenizer(const StagedFolder& folder, const ModelConfig& model, const std::string& path) {
  if (path == kBytes) return make_byte_tokenizer(folder, model);
  if (path.empty()) return;
  bool has_config = false;
  for (const TokenizerFile& file : tokenizer_files(path)) {
    folder.copy(file.path, file.name);
    has_config = has_config || file.name == kTokenizerConfig;
  }
  const std::optional<TokenizerFile> main = main_tokenizer_file(path);
  if (has_config || !main) return;
  nlohmann::ordered_json config;
  config["tokenizer_class"] = kTokenizerClasses.at(main->name);
  write_config(folder, config);
}

void require_room_for_bytes(const ModelConfig& model) {
  const std::size_t tokens = kBytesInAll + special_tokens(model).size();
  if (model.vocabulary >= static_cast<std::int64_t>(tokens)) return;
  throw ConfigError(
      fmt::format("model {} has a vocabulary of {}; bytes as tokens need {}", model.name, model.vocabulary, tokens));
}

}  // namespace chimera

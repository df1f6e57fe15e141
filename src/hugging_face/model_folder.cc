#include "hugging_face/model_folder.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "core/content.h"
#include "core/files.h"
#include "core/json.h"
#include "core/reject.h"
#include "hugging_face/config_json.h"
#include "hugging_face/stored_names.h"
#include "model_config/config.h"
#include "tokenizer/tokenizer_folder.h"
#include "tokenizer/tokenizer_json.h"

// The constructor of ModelFolder proves that the folder has exactly the tensors of the model that config.json
// describes, with their shapes, so that later reads cannot fail for such reasons. find() knows older names of tensors;
// require_whole() calls it for every parameter, and then looks for tensors that no parameter has used. The functions
// below write the small files of an export.

namespace chimera {
namespace {

std::string path_in(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

std::string read_config(const std::string& folder) {
  if (!is_folder(folder)) {
    // A name such as gpt2 or org/model is often meant as a download.
    const std::string download = path_exists(folder) ? "" : hub_download(folder, true);
    reject("{}: is not a folder; {}", folder,
           download.empty() ? fmt::format("give a folder with {} and {}", kConfigName, kWeightsName) : download);
  }
  const std::string path = path_in(folder, kConfigName);
  if (!is_file(path)) reject("{}: has no {}; give the folder of a Hugging Face model", folder, kConfigName);
  std::string text = read_whole(path, kMaxConfigBytes);
  require_downloaded_content(path, text);
  return text;
}

/// At the start of a run, because the folder may be moved before the export.
std::string read_generation_json(const std::string& folder) {
  const std::string path = path_in(folder, kGenerationConfigName);
  return is_file(path) ? read_whole(path, kMaxConfigBytes) : "";
}

std::string name_of(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  // A path with a slash at its end has no file name.
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

bool is_floating(ElementType type) {
  return type == ElementType::F32 || type == ElementType::F64 || type == ElementType::BF16 || type == ElementType::F16;
}

nlohmann::ordered_json sizes_of(ModelConfig model) {
  // An epsilon that is not given is the family's default.
  model.norm_epsilon = norm_epsilon_of(model);
  nlohmann::ordered_json sizes = layer_sizes_json(model);
  sizes["layers"] = model.layers;
  return sizes;
}

constexpr std::size_t kBytesInAll = 256;

/// The default would be the model's class, which may split text differently.
const std::map<std::string, std::string> kTokenizerClasses = {
    {"tokenizer.json", "PreTrainedTokenizerFast"}, {"vocab.json", "GPT2Tokenizer"}, {"vocab.txt", "BertTokenizer"}};

void write_config(const StagedFolder& folder, const nlohmann::ordered_json& config) {
  folder.write(kTokenizerConfig, json_text(config, 2) + "\n");
}

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

using nlohmann::json;

/// Fields of one file. A field that is missing or null has its default.
class Fields {
 public:
  Fields(const std::string& text, std::string source) : json_(try_json(text)), source_(std::move(source)) {
    if (!json_.is_object()) throw ConfigError(source_ + ": is not a JSON object");
  }

  // A copy, because a missing field gives a temporary null.
  [[nodiscard]] json value(const char* name) const { return json_.value(name, json()); }

  /// A list of tokens, which may be a single number.
  [[nodiscard]] std::vector<std::int64_t> tokens(const char* name) const {
    const json found = value(name);
    if (found.is_null()) return {};
    return found.is_array() ? list(found, name) : list(json::array({found}), name);
  }
  [[nodiscard]] std::vector<std::vector<std::int64_t>> sequences(const char* name) const {
    std::vector<std::vector<std::int64_t>> found;
    for (const json& sequence : value(name)) {
      if (!sequence.is_array() || sequence.empty()) fail(name, "must be a list of lists of tokens");
      found.push_back(list(sequence, name));
    }
    return found;
  }
  [[nodiscard]] std::int64_t count(const char* name) const {
    const json found = value(name);
    if (found.is_null()) return 0;
    if (!is_token(found)) fail(name, "must be a whole number, at least 0");
    return found;
  }
  [[nodiscard]] double penalty(const char* name) const {
    const json found = value(name);
    if (found.is_null()) return 1;
    if (!found.is_number() || !(found > 0)) fail(name, "must be a number above 0");
    return found;
  }

 private:
  static bool is_token(const json& found) {
    return found.is_number_integer() && found >= 0 && found <= std::numeric_limits<std::int32_t>::max();
  }
  [[noreturn]] void fail(const char* name, const char* what) const { reject("{}: {} {}", source_, name, what); }
  [[nodiscard]] std::vector<std::int64_t> list(const json& found, const char* name) const {
    if (!std::ranges::all_of(found, is_token)) fail(name, "must be the number of a token, a list of them or null");
    return found;
  }

  json json_;
  std::string source_;
};

/// Fields of transformers that would change a greedy or sampled text, with the values that change nothing. The flags
/// of `chimera generate` replace temperature, top_k and top_p.
std::vector<std::string> ignored_fields(const Fields& fields) {
  constexpr std::array<const char*, 10> kUnsupported = {
      "sequence_bias",       "forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty",
      "stop_strings",        "num_beams",           "guidance_scale",      "penalty_alpha",
      "watermarking_config", "constraints"};
  std::vector<std::string> ignored;
  for (const char* name : kUnsupported) {
    const json value = fields.value(name);
    // 1 is the neutral value of num_beams and guidance_scale, and the others have none but null.
    if (!value.is_null() && value != 1) ignored.emplace_back(name);
  }
  if (fields.penalty("encoder_repetition_penalty") != 1) ignored.emplace_back("encoder_repetition_penalty");
  if (fields.count("encoder_no_repeat_ngram_size") > 0) ignored.emplace_back("encoder_no_repeat_ngram_size");
  return ignored;
}

}  // namespace

ModelFolder::ModelFolder(std::string path)
    : path_(std::move(path)),
      config_json_(read_config(path_)),
      generation_json_(read_generation_json(path_)),
      model_(model_from_config_json(config_json_, path_in(path_, kConfigName), name_of(path_))),
      weights_(path_) {
  require_whole();
}

/// In blocks: a config may claim more blocks than fit into memory.
void ModelFolder::require_whole() const {
  std::set<std::string> used;
  const auto find_all = [&](const std::vector<ParameterSpec>& parameters) {
    for (const ParameterSpec& parameter : parameters) used.insert(find(parameter).tensor.name);
  };
  find_all(embedding_parameters(model_));
  for (std::int64_t layer = 0; layer < model_.layers; ++layer) find_all(block_parameters(model_, layer));
  find_all(head_parameters(model_));
  // A tensor without use is an error: the folder then holds another model than its config says.
  for (const std::string& tensor : weights_.names()) {
    if (used.contains(tensor) || is_ignored_tensor(model_, tensor)) continue;
    const auto repeated = repeated_parameter(model_, tensor);
    if (!repeated) {
      reject("{}: tensor {} is not part of a {} model of the sizes in {}", path_, shown_name(tensor),
             to_text(model_.family), kConfigName);
    }
    require_equal(tensor, *repeated);
  }
}

/// `tensor` is a duplicate in a tied model.
void ModelFolder::require_equal(const std::string& tensor, const ParameterSpec& parameter) const {
  const WeightFiles::Found one = find(parameter);
  const WeightFiles::Found other = *weights_.find(tensor);
  if (are_equal(one, other)) return;
  reject("{}: tie_word_embeddings is true, but tensor '{}' is not '{}'; set it to false in {}, or leave the tensor out",
         path_, tensor, one.tensor.name, kConfigName);
}

WeightFiles::Found ModelFolder::find(const ParameterSpec& parameter) const {
  const std::vector<std::string> names = stored_names(model_, parameter.name);
  // The newest name comes first, so a folder with both names is read like transformers reads it.
  for (const std::string& name : names) {
    auto found = weights_.find(name);
    if (!found) continue;
    if (!is_floating(found->tensor.type)) {
      reject("{}: tensor '{}' is {}; weights must be F32, F64, BF16 or F16", found->file->path(), name,
             to_text(found->tensor.type));
    }
    if (found->tensor.shape != parameter.shape) {
      reject("{}: tensor '{}' is [{}], but the sizes in {} make it [{}]", found->file->path(), name,
             fmt::join(found->tensor.shape, ", "), kConfigName, fmt::join(parameter.shape, ", "));
    }
    return *std::move(found);
  }
  reject("{}: tensor '{}' is missing; a {} model of the sizes in {} has it", path_, names.front(),
         to_text(model_.family), kConfigName);
}

std::vector<ParameterSpec> all_parameters(const ModelConfig& model) {
  return stage_parameters(model, {0, model.layers, true, true});
}

ModelConfig find_model_or_folder(const std::string& name) {
  return is_folder(name) ? ModelFolder(name).model() : find_model(name);
}

void require_no_contradiction(const ModelFolder& folder, const std::string& model, const ModelOverrides& overrides) {
  const ModelConfig& own = folder.model();
  const ModelConfig given = with_overrides(model.empty() ? own : find_model(model), overrides);
  // As JSON, so that a new size of the model is compared without a change here.
  const nlohmann::ordered_json ours = sizes_of(own);
  const nlohmann::ordered_json theirs = sizes_of(given);
  for (const auto& [field, value] : ours.items()) {
    const bool follows_hidden = field == "feed_forward" && model.empty();  // from --hidden
    if (theirs.value(field, nlohmann::ordered_json()) == value || follows_hidden) continue;
    reject("{}: its model has {} {}, but the flags give {}; leave out the flags that describe the model", folder.path(),
           field, json_text(value), json_text(theirs.value(field, nlohmann::ordered_json())));
  }
}

std::vector<TensorEntry> exported_tensors(const ModelConfig& model, ElementType type) {
  std::vector<TensorEntry> tensors;
  for (const ParameterSpec& parameter : all_parameters(model))
    for (const std::string& name : exported_names(model, parameter.name))
      tensors.push_back({.name = name, .type = type, .shape = parameter.shape});
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
  if (!source->generation_json().empty()) folder.write(kGenerationConfigName, source->generation_json());
}

void add_tokenizer(const StagedFolder& folder, const ModelConfig& model, const std::string& path,
                   const std::map<std::string, std::string>& texts) {
  if (path == kBytesName) return make_byte_tokenizer(folder, model);
  for (const auto& [name, text] : texts) folder.write(name, text);
  if (texts.contains(kTokenizerConfig)) return;
  const auto main = std::ranges::find_if(kTokenizerNames, [&](const char* name) { return texts.contains(name); });
  if (main == kTokenizerNames.end()) return;
  nlohmann::ordered_json config;
  config["tokenizer_class"] = kTokenizerClasses.at(*main);
  write_config(folder, config);
}

void require_room_for_bytes(const ModelConfig& model) {
  const std::size_t tokens = kBytesInAll + special_tokens(model).size();
  if (model.vocabulary >= static_cast<std::int64_t>(tokens)) return;
  reject("model {} has a vocabulary of {}; bytes as tokens need {}", model.name, model.vocabulary, tokens);
}

GenerationConfig read_generation_config(const ModelFolder& folder) {
  if (folder.generation_json().empty()) {
    // Old folders have their end token in config.json.
    const Fields model(folder.config_json(), path_in(folder.path(), kConfigName));
    return {.end_tokens = model.tokens("eos_token_id"), .rules = {}, .ignored = {}};
  }
  const Fields fields(folder.generation_json(), path_in(folder.path(), kGenerationConfigName));
  return {.end_tokens = fields.tokens("eos_token_id"),
          .rules = {.repetition_penalty = fields.penalty("repetition_penalty"),
                    .no_repeat_ngram_size = fields.count("no_repeat_ngram_size"),
                    .bad_words_ids = fields.sequences("bad_words_ids"),
                    .min_length = fields.count("min_length"),
                    .min_new_tokens = fields.count("min_new_tokens"),
                    .suppress_tokens = fields.tokens("suppress_tokens"),
                    .begin_suppress_tokens = fields.tokens("begin_suppress_tokens")},
          .ignored = ignored_fields(fields)};
}

}  // namespace chimera

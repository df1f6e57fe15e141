#include "train/setup/data_tokenizer.h"

#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "checkpoint/manifest.h"
#include "core/error.h"
#include "tokenizer/tokenizer_folder.h"
#include "tokenizer/unicode.h"

namespace chimera {
std::shared_ptr<const TrainingPrompt> training_prompt(const TrainOptions& options, const std::string& tokenizer,
                                                      const ModelConfig& model) {
  if (options.sample_every == 0 && options.prompt.empty()) return nullptr;
  if (options.sample_every == 0) throw ConfigError("--prompt is for --sample-every");
  require_continuable(model);
  if (options.prompt.empty()) throw ConfigError("--sample-every needs a text to continue; give --prompt");
  if (const auto place = find_invalid_utf8(options.prompt)) {
    throw ConfigError(fmt::format("--prompt: byte {} is not valid UTF-8", *place));
  }
  if (tokenizer.empty()) {
    throw ConfigError("--prompt: the data are tokens of an unknown tokenizer; give their --tokenizer");
  }
  auto result = std::make_shared<TrainingPrompt>();
  result->tokenizer = open_tokenizer(tokenizer);
  result->prompt.ids = result->tokenizer->with_special(encode(*result->tokenizer, options.prompt));
  require_in_vocabulary(result->prompt.ids, model, "--prompt");
  result->options.tokens = std::min(kSampleTokens, most_new_tokens(model, std::ssize(result->prompt.ids), "--prompt"));
  return result;
}

namespace {

std::string tokenizer_path(const std::string& given, const ModelFolder* from) {
  if (!given.empty() || from == nullptr) return given;
  return tokenizer_of_folder(from->path());
}

/// Throws ConfigError for invalid UTF-8.
std::vector<std::int32_t> encode_file(const Tokenizer& tokenizer, const DataFile& file) {
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  if (const auto place = find_invalid_utf8(text)) {
    throw ConfigError(
        fmt::format("{}: byte {} is not valid UTF-8; a tokenizer needs valid UTF-8", file.path(), *place));
  }
  return encode(tokenizer, text);
}

std::string recorded_tokenizer(const std::string& folder) {
  try {
    const Manifest manifest = read_manifest(folder);
    const auto found = manifest.run.find("tokenizer");
    return found != manifest.run.end() && found->is_string() ? found->get<std::string>() : "";
  } catch (const CheckpointError&) {
    return "";
  }
}

}  // namespace

std::string tokenizer_of_folder(const std::string& folder) {
  if (main_tokenizer_file(folder)) return folder;
  std::error_code none;
  if (!std::filesystem::exists(folder + "/" + kManifestName, none)) return "";
  const std::string recorded = recorded_tokenizer(folder);
  return recorded == kBytes || std::filesystem::exists(recorded, none) ? recorded : "";
}

DataTokenizer::DataTokenizer(const std::string& given, const ModelFolder* from, const ModelConfig& model)
    : model_(model.name),
      vocabulary_(model.vocabulary),
      kind_(is_causal(model.family) ? SampleKind::NextToken : SampleKind::MaskedPairs),
      folder_(from == nullptr ? "" : from->path()),
      path_(tokenizer_path(given, from)) {
  if (path_.empty() || makes_bytes(path_)) return;
  tokenizer_ = open_tokenizer(path_);
  const std::int64_t tokens = tokenizer_->vocabulary_size();
  if (tokens <= vocabulary_) return;
  throw ConfigError(fmt::format(
      "the tokenizer {} has {} tokens, model {} a vocabulary of {}; give the model's own or, for a new model, "
      "--vocabulary {}",
      path_, tokens, model_, vocabulary_, tokens));
}

TokenOptions DataTokenizer::token_options() const {
  TokenOptions options{.vocabulary = vocabulary_};
  if (!tokenizer_) return options;
  options.end_of_document = tokenizer_->end_of_document();
  options.encode = [this](const DataFile& text) { return encode_file(*tokenizer_, text); };
  return options;
}

SampleOptions DataTokenizer::sample_options(bool is_plain_text) const {
  SampleOptions options{.kind = kind_, .is_plain_text = is_plain_text};
  if (is_plain_text) {  // Other data: ids are already checked
    if (vocabulary_ >= vocabulary_needed(kind_)) return options;
    throw ConfigError(fmt::format("model {} has a vocabulary of {}; the data's tokens need {}", model_, vocabulary_,
                                  vocabulary_needed(kind_)));
  }
  if (kind_ == SampleKind::NextToken) return options;
  if (!tokenizer_) {
    throw ConfigError(
        fmt::format("model {} needs the ids of [CLS], [SEP] and [MASK]; give the --tokenizer of these tokens", model_));
  }
  options.special = {special_token("[CLS]"), special_token("[SEP]"), special_token("[MASK]")};
  options.replacements = tokenizer_->vocabulary_size();
  return options;
}

std::string DataTokenizer::source(bool is_plain_text) const {
  if (!path_.empty()) return path_;
  return is_plain_text ? kBytes : folder_;
}

std::int64_t DataTokenizer::special_token(const char* token) const {
  if (const auto id = tokenizer_->find_token(token)) return *id;
  throw ConfigError(
      fmt::format("the tokenizer {} has no {}, which samples of BERT need; give one of BERT's", path_, token));
}

}  // namespace chimera

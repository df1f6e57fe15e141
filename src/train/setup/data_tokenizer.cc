#include "train/setup/data_tokenizer.h"

#include <algorithm>

#include "checkpoint/block_hashes.h"
#include "checkpoint/manifest.h"
#include "core/files.h"
#include "core/reject.h"
#include "tokenizer/tokenizer_folder.h"
#include "tokenizer/unicode.h"

// Finds the tokenizer of a run: the one that --tokenizer names, else the one of the model folder of --from, which may
// be a checkpoint with a copy of its tokenizer, or an old checkpoint that only says where the tokenizer was. Without
// any, texts are read as bytes, if the vocabulary is one of bytes.

namespace chimera {
namespace {

namespace fs = std::filesystem;

/// Throws ConfigError for invalid UTF-8.
std::vector<std::int32_t> encode_file(const Tokenizer& tokenizer, const DataFile& file) {
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  if (const auto place = find_invalid_utf8(text))
    reject("{}: byte {} is not valid UTF-8; a tokenizer needs valid UTF-8", file.path(), *place);
  return encode(tokenizer, text);
}

std::string hash_of(const std::string& text) { return hash128(std::as_bytes(std::span(text))); }

bool is_checkpoint(const std::string& folder) { return path_exists(folder + "/" + kManifestName); }

nlohmann::ordered_json run_of_checkpoint(const std::string& checkpoint) {
  try {
    return read_manifest(checkpoint).run;
  } catch (const CheckpointError& error) {
    throw ConfigError(error.what());
  }
}

/// Older versions recorded the path as typed, which means another file in another folder. A run that was moved has its
/// tokenizer beside it, if anywhere.
std::string find_recorded(const std::string& checkpoint, const std::string& recorded) {
  const fs::path typed(recorded);
  // A path with a slash at its end has no file name: "tokens/" is the folder "tokens".
  const fs::path name = typed.has_filename() ? typed.filename() : typed.parent_path().filename();
  fs::path base = fs::absolute(checkpoint).lexically_normal();
  if (!base.has_filename()) base = base.parent_path();
  std::vector<fs::path> places;
  for (int up = 0; up < 3; ++up, base = base.parent_path()) {  // The checkpoint, its run, and the folder of the run
    places.push_back(base / name);
    if (typed.is_relative()) places.push_back(base / typed);
  }
  places.push_back(typed);
  for (const fs::path& place : places)
    if (path_exists(place) && main_tokenizer_file(place.string())) return place.string();
  reject("{}: the run's tokenizer {} is missing, also beside the run; give --tokenizer", checkpoint, recorded);
}

}  // namespace

std::shared_ptr<const TrainingPrompt> training_prompt(const TrainOptions& options, const std::string& tokenizer,
                                                      const ModelConfig& model) {
  if (options.data.sample_every == 0 && options.data.prompt.empty()) return nullptr;
  if (options.data.sample_every == 0) reject("--prompt is for --sample-every");
  require_continuable(model);
  if (options.data.prompt.empty()) reject("--sample-every needs a text to continue; give --prompt");
  if (const auto place = find_invalid_utf8(options.data.prompt)) reject("--prompt: byte {} is not valid UTF-8", *place);
  if (tokenizer.empty()) reject("--prompt: the data are tokens of an unknown tokenizer; give their --tokenizer");
  auto result = std::make_shared<TrainingPrompt>();
  result->tokenizer = open_tokenizer(tokenizer);
  // With the tokens that the tokenizer puts around each text, such as Llama's first one.
  result->prompt.ids = result->tokenizer->with_special(encode(*result->tokenizer, options.data.prompt));
  require_in_vocabulary(result->prompt.ids, model, "--prompt");
  result->options.tokens = std::min(kSampleTokens, most_new_tokens(model, std::ssize(result->prompt.ids), "--prompt"));
  return result;
}

nlohmann::ordered_json tokenizer_record(const std::string& tokenizer, const std::map<std::string, std::string>& texts) {
  auto files = nlohmann::ordered_json::object();
  for (const auto& [name, text] : texts) files[name] = hash_of(text);
  return {{"source", tokenizer}, {"files", files}};
}

std::string recorded_source(const nlohmann::ordered_json& run) {
  const auto record = run.value("tokenizer", nlohmann::ordered_json(""));
  return record.is_string() ? record.get<std::string>() : record.value("source", "");
}

std::string tokenizer_of_folder(const std::string& folder) {
  if (!is_checkpoint(folder)) return main_tokenizer_file(folder) ? folder : "";
  const nlohmann::ordered_json run = run_of_checkpoint(folder);
  const std::string source = recorded_source(run);
  const auto record = run.value("tokenizer", nlohmann::ordered_json());
  // The copy is as the run left it: whoever reads a checkpoint has verified its files.
  if (record.is_object() && record.contains("files") && !record["files"].empty()) return folder;
  if (main_tokenizer_file(folder)) return folder;
  return source.empty() || source == kBytesName ? source : find_recorded(folder, source);
}

DataTokenizer::DataTokenizer(const std::string& given, const ModelFolder* from, const ModelConfig& model)
    : model_(model.name),
      vocabulary_(model.vocabulary),
      kind_(is_causal(model.family) ? SampleKind::NextToken : SampleKind::MaskedPairs),
      // --tokenizer wins: a model may be trained further with another one.
      path_(given.empty() && from != nullptr ? tokenizer_of_folder(from->path()) : given) {
  if (path_.empty() && from != nullptr) {
    if (is_checkpoint(from->path())) {
      // No error yet: if --data is tokens too, no tokenizer is needed. sample_options() knows.
      unknown_ = fmt::format("the tokenizer of {} is not known, because its run read tokens", from->path());
    } else if (vocabulary_ != vocabulary_needed(kind_)) {
      unknown_ = fmt::format("{} has no tokenizer, and a vocabulary of {} is not a byte vocabulary", from->path(),
                             vocabulary_);
    }
  }
  if (path_.empty() || makes_bytes(path_)) return;
  tokenizer_ = open_tokenizer(path_);
  const std::int64_t tokens = tokenizer_->vocabulary_size();
  if (tokens <= vocabulary_) return;
  reject(
      "the tokenizer {} has {} tokens, model {} a vocabulary of {}; give the model's own or, for a new model, "
      "--vocabulary {}",
      path_, tokens, model_, vocabulary_, tokens);
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
  // Tokens of a file are compared with the vocabulary when it is opened.
  if (is_plain_text) {
    if (!unknown_.empty()) reject("--data is text, but {}; give --tokenizer FILE, or --tokenizer bytes", unknown_);
    if (vocabulary_ >= vocabulary_needed(kind_)) return options;
    reject("model {} has a vocabulary of {}; the data's tokens need {}", model_, vocabulary_, vocabulary_needed(kind_));
  }
  if (kind_ == SampleKind::NextToken) return options;
  if (!tokenizer_)
    reject("model {} needs the ids of [CLS], [SEP] and [MASK]; give the --tokenizer of these tokens", model_);
  options.special = {special_token("[CLS]"), special_token("[SEP]"), special_token("[MASK]")};
  // BERT replaces some masked tokens by random ones, which must be tokens that the tokenizer knows. The vocabulary of
  // the model may be larger.
  options.replacements = tokenizer_->vocabulary_size();
  return options;
}

std::string DataTokenizer::source(bool is_plain_text) const {
  if (!path_.empty()) return path_;
  return is_plain_text ? kBytesName : "";
}

std::int64_t DataTokenizer::special_token(const char* token) const {
  if (const auto id = tokenizer_->find_token(token)) return *id;
  reject("the tokenizer {} has no {}, which samples of BERT need; give one of BERT's", path_, token);
}

}  // namespace chimera

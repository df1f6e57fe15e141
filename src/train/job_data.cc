#include "train/job_data.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace chimera {
namespace {

/// --tokenizer or, where the run starts from a folder that has one, that of the folder. Empty: bytes are tokens.
std::string tokenizer_path(const Job& job) {
  if (job.options.tokenizer == "bytes") return "";
  if (!job.options.tokenizer.empty() || !job.from) return job.options.tokenizer;
  std::error_code absent;
  for (const char* file : {"tokenizer.json", "vocab.json", "vocab.txt"}) {
    if (std::filesystem::exists(std::filesystem::path(job.from->path()) / file, absent)) return job.from->path();
  }
  return "";
}

/// Nothing where bytes are tokens.
std::unique_ptr<Tokenizer> tokenizer_of(const Job& job, const std::string& path) {
  if (path.empty()) return nullptr;
  std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(path);
  if (tokenizer->vocabulary_size() <= job.model.vocabulary) return tokenizer;
  throw ConfigError(fmt::format("the tokenizer {} has {} tokens, model {} a vocabulary of {}; give --vocabulary {}",
                                path, tokenizer->vocabulary_size(), job.model.name, job.model.vocabulary,
                                tokenizer->vocabulary_size()));
}

/// The ids of a text file, which must be valid UTF-8.
std::vector<std::int32_t> encode_file(const Tokenizer& tokenizer, const DataFile& file) {
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  if (const auto place = find_invalid_utf8(text)) {
    throw ConfigError(
        fmt::format("{}: byte {} is not valid UTF-8; a tokenizer needs text that is", file.path(), *place));
  }
  return encode(tokenizer, text);
}

DataOptions data_options(const Job& job, const Tokenizer* tokenizer) {
  const TrainOptions& options = job.options;
  DataOptions data{.data = options.data,
                   .validation = options.validation,
                   .seed = static_cast<std::uint64_t>(options.seed),
                   .tokens = {.vocabulary = job.model.vocabulary}};
  if (tokenizer != nullptr) {
    data.tokens.end_of_document = tokenizer->end_of_document();
    data.tokens.encode = [tokenizer](const DataFile& text) { return encode_file(*tokenizer, text); };
  }
  if (options.end_of_document != kNoToken) data.tokens.end_of_document = options.end_of_document;
  return data;
}

/// BERT's pairs have texts of their own.
void require_documents(const Job& job) {
  if (job.options.documents == Documents::Pack || is_causal(job.model.family)) return;
  throw ConfigError(fmt::format("--documents split: samples of model {} are pairs of texts; use pack", job.model.name));
}

/// Of plain text all ids are known; those of files of tokens have been looked at when they were opened.
void require_vocabulary(const Job& job, SampleKind kind) {
  if (!job.corpus->is_plain_text() || job.model.vocabulary >= vocabulary_needed(kind)) return;
  throw ConfigError(fmt::format("model {} has a vocabulary of {}; the data's tokens need {}", job.model.name,
                                job.model.vocabulary, vocabulary_needed(kind)));
}

std::int64_t special_token(const Tokenizer& tokenizer, const std::string& path, const char* token) {
  if (const auto id = tokenizer.find_token(token)) return *id;
  throw ConfigError(
      fmt::format("the tokenizer {} has no {}, which samples of BERT need; give one of BERT's", path, token));
}

/// What becomes of tokens in samples for BERT.
void name_special_tokens(const Job& job, const Tokenizer* tokenizer, const std::string& path, SampleOptions& samples) {
  if (job.corpus->is_plain_text()) return;
  samples.is_plain_text = false;
  if (samples.kind == SampleKind::NextToken) return;
  if (tokenizer == nullptr) {
    throw ConfigError(fmt::format(
        "model {} needs the ids of [CLS], [SEP] and [MASK]; give the --tokenizer of these tokens", job.model.name));
  }
  samples.special = {special_token(*tokenizer, path, "[CLS]"), special_token(*tokenizer, path, "[SEP]"),
                     special_token(*tokenizer, path, "[MASK]")};
  samples.replacements = tokenizer->vocabulary_size();
}

}  // namespace

void open_data(Job& job) {
  const TrainOptions& options = job.options;
  if (options.data.empty()) throw ConfigError("--data is missing; give a UTF-8 text file, or one of tokens");
  const std::string path = tokenizer_path(job);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(job, path);
  job.corpus = std::make_shared<Corpus>(open_corpus(data_options(job, tokenizer.get())));
  const SampleKind kind = is_causal(job.model.family) ? SampleKind::NextToken : SampleKind::MaskedPairs;
  require_vocabulary(job, kind);
  require_documents(job);
  SampleOptions samples{kind, options.sequence, static_cast<std::uint64_t>(options.seed), options.documents};
  name_special_tokens(job, tokenizer.get(), path, samples);
  job.training_samples.emplace(job.corpus->split(Split::Train), samples);
  if (options.validate_every > 0) job.validation_samples.emplace(job.corpus->split(Split::Validation), samples);
}

}  // namespace chimera

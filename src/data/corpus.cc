#include "data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace chimera {
namespace {

std::optional<double> share_of(const std::string& validation) {
  std::error_code absent;
  if (validation.empty() || std::filesystem::exists(validation, absent)) return std::nullopt;
  double share = 0;
  const char* end = validation.data() + validation.size();
  const auto [rest, error] = std::from_chars(validation.data(), end, share);
  if (error != std::errc() || rest != end) return std::nullopt;
  if (share >= 0 && share < 1) return share;
  throw ConfigError(fmt::format("--validation {}: expected a share of at least 0 and below 1, or a file", validation));
}

TokenView whole(const std::shared_ptr<const TokenStream>& stream, const std::string& name) {
  return {stream, 0, stream->size(), name};
}

/// Data of the sources opened so far.
struct Opened {
  std::vector<TokenView> training;
  std::vector<TokenView> validation;
  std::vector<const DataFile*> files;
  bool is_plain_text = true;
  std::string description;
  std::vector<std::string> passed_over;
};

bool is_bytes_of_text(const TokenFile& file) {
  return file.layout().format == kTextFormat && file.layout().type == TokenType::U8;
}

void check_ids(const TokenStream& stream) {
  constexpr std::int64_t kBlocks = 64;
  constexpr std::int64_t kBlock = std::int64_t{1} << 19;
  std::vector<std::int64_t> block;
  const std::int64_t stride = std::max(kBlock, stream.size() / kBlocks);
  for (std::int64_t first = 0; first < stream.size(); first += stride) {
    block.resize(static_cast<std::size_t>(std::min(kBlock, stream.size() - first)));
    stream.read(first, block);
  }
}

/// Records the files of a stream; a view must own it.
void add_stream(const std::shared_ptr<const TokenStream>& stream, Opened& opened) {
  const auto& files = stream->files();
  const bool is_plain_text = std::all_of(files.begin(), files.end(), is_bytes_of_text);
  if (!is_plain_text) check_ids(*stream);
  opened.is_plain_text &= is_plain_text;
  for (const TokenFile& file : files) {
    opened.files.push_back(&file.file());
    if (file.layout().index) opened.files.push_back(&file.layout().index->file());
  }
}

void describe(const std::string& path, const FoundTokens& found, std::int64_t tokens, Opened& opened) {
  if (!opened.description.empty()) opened.description += "; ";
  opened.description += fmt::format("{}: {}, {} tokens", path, found.format, tokens);
  if (!found.passed_over.empty()) opened.passed_over.push_back(found.passed_over);
}

FoundTokens open_training(const std::string& path, const TokenOptions& options, Opened& opened) {
  FoundTokens found = open_tokens(path, options);
  if (!found.training) {
    throw ConfigError(fmt::format("the folder {} has only shards for validation; expected training shards too", path));
  }
  add_stream(found.training, opened);
  describe(path, found, found.training->size(), opened);
  return found;
}

const std::shared_ptr<const TokenStream>& for_validation(const FoundTokens& found) {
  return found.validation ? found.validation : found.training;
}

/// Adds the validation shards of `path`, or else all of it.
void add_validation(const std::string& path, const TokenOptions& options, Opened& opened) {
  const FoundTokens found = open_tokens(path, options);
  const auto& stream = for_validation(found);
  add_stream(stream, opened);
  describe(path, found, stream->size(), opened);
  opened.validation.push_back(whole(stream, path + " (validation)"));
}

/// Validation is the source's validation shards, or else the last `share` of its tokens.
void split_source(const std::string& path, const FoundTokens& found, std::optional<double> share, Opened& opened) {
  const auto& stream = found.training;
  if (found.validation && share) {
    throw ConfigError(
        fmt::format("--validation {:g}: {} has shards for validation; leave out the share", *share, path));
  }
  const double last = found.validation ? 0 : share.value_or(kValidationShare);
  const auto validation = static_cast<std::int64_t>(static_cast<double>(stream->size()) * last);
  const std::int64_t training = stream->size() - validation;
  opened.training.emplace_back(stream, 0, training, path + " (training)");
  if (found.validation) {
    add_stream(found.validation, opened);
    opened.validation.push_back(whole(found.validation, path + " (validation)"));
  } else {
    opened.validation.emplace_back(stream, training, validation, path + " (validation)");
  }
}

}  // namespace

Corpus open_corpus(const DataOptions& options) {
  const std::optional<double> share = share_of(options.validation);
  const bool has_files = !options.validation.empty() && !share;
  const std::vector<MixtureEntry> entries = parse_mixture(options.data);
  std::vector<MixtureEntry> validation_entries = entries;
  Opened opened;
  for (const MixtureEntry& entry : entries) {
    const FoundTokens found = open_training(entry.path, options.tokens, opened);
    if (has_files) {
      opened.training.push_back(whole(found.training, entry.path + " (training)"));
    } else {
      split_source(entry.path, found, share, opened);
    }
  }
  if (has_files) {
    validation_entries = parse_mixture(options.validation);
    for (const MixtureEntry& entry : validation_entries) add_validation(entry.path, options.tokens, opened);
  }
  Corpus corpus({std::move(opened.training), Mixture(entries, options.seed)},
                {std::move(opened.validation), Mixture(validation_entries, options.seed)});
  corpus.files_ = std::move(opened.files);
  corpus.is_plain_text_ = opened.is_plain_text;
  corpus.description_ = std::move(opened.description);
  corpus.passed_over_ = std::move(opened.passed_over);
  return corpus;
}

WholeSource open_whole_source(const std::string& path, const TokenOptions& options) {
  if (parse_mixture(path) != std::vector<MixtureEntry>{{1, path}}) {
    throw ConfigError(fmt::format("--data {}: is a mixture; give one file or folder", path));
  }
  const FoundTokens found = open_tokens(path, options);
  const auto& stream = for_validation(found);
  Opened opened;
  add_stream(stream, opened);
  describe(path, found, stream->size(), opened);
  return {whole(stream, path), opened.is_plain_text, std::move(opened.description), found.passed_over};
}

}  // namespace chimera

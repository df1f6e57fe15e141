#include "data/corpus.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/choices.h"
#include "core/files.h"
#include "core/reject.h"

namespace chimera {
namespace {

std::optional<double> share_of(const std::string& validation) {
  // A file named `0.1` is a file; otherwise a number is a share, and anything else a path or a mixture.
  if (validation.empty() || path_exists(validation)) return std::nullopt;
  const auto share = parse_number<double>(validation);
  if (!share || (*share >= 0 && *share < 1)) return share;
  reject("--validation {}: expected a share of at least 0 and below 1, or a file", validation);
}

TokenView whole(const std::shared_ptr<const TokenStream>& stream, const std::string& name) {
  return {stream, 0, stream->size(), name};
}

bool is_bytes_of_text(const TokenFile& file) {
  return file.layout().format == kTextFormat && file.layout().type == TokenType::U8;
}

void check_ids(const TokenStream& stream) {
  constexpr std::int64_t kBlocks = 64;
  constexpr std::int64_t kBlock = std::int64_t{1} << 19;
  std::vector<std::int64_t> block;
  // Up to 2^25 tokens: a wrong vocabulary shows at once, and a corpus of terabytes is not read before the first step.
  const std::int64_t stride = std::max(kBlock, stream.size() / kBlocks);
  for (std::int64_t first = 0; first < stream.size(); first += stride) {
    block.resize(static_cast<std::size_t>(std::min(kBlock, stream.size() - first)));
    stream.read(first, block);
  }
}

/// Records the files of a stream; a view must own it.
void record(const std::shared_ptr<const TokenStream>& stream, OpenedFiles& opened) {
  const auto& files = stream->files();
  const bool is_plain_text = std::all_of(files.begin(), files.end(), is_bytes_of_text);
  if (!is_plain_text) check_ids(*stream);
  opened.is_plain_text &= is_plain_text;
  for (const TokenFile& file : files) {
    opened.files.push_back(&file.file());
    if (file.layout().index) opened.files.push_back(&file.layout().index->file());
  }
}

/// Opens a source and records its tokens for training. If `whole`, these are all of its tokens, or its validation
/// shards if it has any.
FoundTokens open_source(const std::string& path, bool whole, const TokenOptions& options, OpenedFiles& opened) {
  FoundTokens found = open_tokens(path, options);
  if (!found.training && !whole)
    reject("the folder {} has only shards for validation; expected training shards too", path);
  if (whole && found.validation) found.training = found.validation;
  record(found.training, opened);
  if (!opened.description.empty()) opened.description += "; ";
  opened.description += fmt::format("{}: {}, {} tokens", path, found.format, found.training->size());
  if (!found.ignored_files_note.empty()) opened.ignored_files_note.push_back(found.ignored_files_note);
  return found;
}

}  // namespace

Corpus open_corpus(const CorpusOptions& options) {
  const std::optional<double> share = share_of(options.validation);
  const bool has_files = !options.validation.empty() && !share;
  const std::vector<MixtureEntry> entries = parse_mixture(options.data);
  std::vector<MixtureEntry> validation_entries = entries;
  OpenedFiles opened;
  std::vector<TokenView> training;
  std::vector<TokenView> validation;
  for (const auto& [weight, path] : entries) {
    const FoundTokens found = open_source(path, /*whole=*/false, options.tokens, opened);
    const auto& stream = found.training;
    if (found.validation && share)
      reject("--validation {:g}: {} has shards for validation; leave out the share", *share, path);
    // The share that is cut off at the end of this source: none if validation has files of its own.
    const double last = has_files || found.validation ? 0 : share.value_or(kValidationShare);
    const auto count = static_cast<std::int64_t>(static_cast<double>(stream->size()) * last);
    training.emplace_back(stream, 0, stream->size() - count, path + " (training)");
    // Opened below, because they may be other paths in another number.
    if (has_files) continue;
    if (found.validation) {
      record(found.validation, opened);
      validation.push_back(whole(found.validation, path + " (validation)"));
    } else {
      validation.emplace_back(stream, stream->size() - count, count, path + " (validation)");
    }
  }
  if (has_files) {
    validation_entries = parse_mixture(options.validation);
    for (const auto& [weight, path] : validation_entries) {
      const FoundTokens found = open_source(path, /*whole=*/true, options.tokens, opened);
      validation.push_back(whole(found.training, path + " (validation)"));
    }
  }
  return {.training = {.sources = std::move(training), .mixture = Mixture(entries, options.seed)},
          .validation = {.sources = std::move(validation), .mixture = Mixture(validation_entries, options.seed)},
          .opened = std::move(opened)};
}

WholeSource open_whole_source(const std::string& path, const TokenOptions& options) {
  // A path that is no mixture is parsed as itself with weight 1.
  if (parse_mixture(path) != std::vector<MixtureEntry>{{1, path}})
    reject("--data {}: is a mixture; give one file or folder", path);
  OpenedFiles opened;
  const FoundTokens found = open_source(path, /*whole=*/true, options, opened);
  return {.tokens = whole(found.training, path), .opened = std::move(opened)};
}

}  // namespace chimera

#include "data/open_tokens.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <span>
#include <system_error>
#include <type_traits>

#include "core/content.h"
#include "core/file_descriptor.h"
#include "core/files.h"
#include "core/reject.h"

// open_tokens() opens a folder file by file, and open_file() decides about one file: a Megatron pair by its names,
// llm.c by its magic number, raw tokens by the suffix, and text otherwise. Raw tokens and text have no magic number, so
// both are first checked for other content (require_no_foreign_content(), require_text_content(), require_16_bits()),
// because any bytes could be trained on without an error.

namespace chimera {
namespace {

namespace fs = std::filesystem;

std::string without(std::string_view suffix, const std::string& path) {
  return path.ends_with(suffix) ? path.substr(0, path.size() - suffix.size()) : path;
}

void require_tokens_of(const std::string& index, const std::string& tokens) {
  if (path_exists(tokens)) return;
  reject("{}: the file of its tokens, {}, does not exist", index, tokens);
}

TokenFile open_megatron(const std::string& prefix, const TokenOptions& options) {
  const std::string index_path = prefix + std::string(kMegatronIndexSuffix);
  const std::string tokens_path = prefix + std::string(kMegatronTokensSuffix);
  require_tokens_of(index_path, tokens_path);
  DataFile tokens(tokens_path);
  MegatronIndex index(DataFile(index_path), tokens.size());
  TokenLayout layout{
      .count = tokens.size() / width_of(index.type()), .type = index.type(), .format = "Megatron tokens"};
  layout.index.emplace(std::move(index));
  return {std::move(tokens), std::move(layout), options.vocabulary};
}

/// Magic numbers of llm.c files without tokens.
constexpr std::array<std::pair<std::int32_t, const char*>, 4> kOtherLlmcFiles = {
    {{20240522, "questions for evaluation"}, {20240326, "a model"}, {20240327, "a state"}, {20240328, "a tokenizer"}}};

TokenLayout raw_layout(const DataFile& file, const TokenOptions& options) {
  if (file.size() % width_of(kRawType) != 0)
    reject(
        "{}: has {} bytes, so it cannot hold 16-bit tokens; expected an even number (or a header of llm.c, or "
        "Megatron's index in the same folder)",
        file.path(), file.size());
  TokenLayout layout{.count = file.size() / width_of(kRawType), .type = kRawType, .format = "raw 16-bit tokens"};
  // nanoGPT writes the end-of-text token behind each document.
  if (options.end_of_document) layout.mark = DocumentMark{*options.end_of_document, false};
  return layout;
}

std::string head_of(const DataFile& file) {
  std::string head(std::min(static_cast<std::size_t>(file.size()), kContentHead), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  return head;
}

/// Throws ConfigError if every second number is small, like upper halves of 32-bit tokens.
void require_16_bits(const DataFile& file) {
  constexpr std::size_t kMin = 32;  // numbers
  constexpr std::size_t kMax = 1 << 16;
  constexpr std::uint16_t kUpper = 3;  // of ids below 2^18
  if (file.size() % 4 != 0) return;
  std::vector<std::uint16_t> numbers(std::min(static_cast<std::size_t>(file.size()) / sizeof(std::uint16_t), kMax));
  file.read(0, std::as_writable_bytes(std::span(numbers)));
  // Real 16-bit ids are rarely small at every second place. Lower halves must vary, or the file has small ids only.
  std::size_t small_lower = 0;
  for (std::size_t i = 0; i < numbers.size(); i += 2) {
    // One large upper half shows that these are 16-bit ids.
    if (numbers[i + 1] > kUpper) return;
    if (numbers[i] <= kUpper) ++small_lower;
  }
  // numbers.size() / 2 lower halves: if more than three quarters of them are small as well, the file just has small
  // ids.
  if (numbers.size() < kMin || small_lower > numbers.size() * 3 / 8) return;
  reject(
      "{}: looks like tokens of 32 or 64 bits; raw tokens have 16: write them as 16 bits, or make files for a larger "
      "vocabulary with chimera tokenize",
      file.path());
}

TokenFile open_text(DataFile file, const TokenOptions& options) {
  const std::int64_t bytes = file.size();
  if (bytes >= std::int64_t{kMegatronMagic.size()} &&
      file.number_at<std::remove_const_t<decltype(kMegatronMagic)>>(0) == kMegatronMagic)
    reject("{}: is a Megatron index; its name must end in {}", file.path(), kMegatronIndexSuffix);
  require_text_content(file.path(), head_of(file),
                       "make tokens of it: chimera tokenize FILE --field text --tokenizer TOKENIZER --output PREFIX");
  // Without a tokenizer, bytes are tokens, and nothing is read now.
  if (!options.encode) return {std::move(file), {.count = bytes}, options.vocabulary};
  if (bytes > kMaxTextBytes)
    reject(
        "{}: has {} bytes; with a tokenizer a text is at most {} long: make a file of tokens with `chimera tokenize`",
        file.path(), bytes, kMaxTextBytes);
  const std::vector<std::int32_t> tokens = options.encode(file);
  if (tokens.empty()) throw ConfigError(file.path() + ": has no tokens under this tokenizer; expected some text");
  return tokens_in_memory(tokens, file.path(), options.vocabulary);
}

TokenFile open_file(const std::string& path, const TokenOptions& options) {
  // --data may name the prefix or either file of a Megatron pair.
  // For PREFIX.bin, PREFIX.idx and PREFIX alike. A *.bin without an index falls through to the other formats.
  const std::string prefix = without(kMegatronIndexSuffix, without(kMegatronTokensSuffix, path));
  const bool may_be_prefix = prefix != path || !path_exists(path);
  if (may_be_prefix && path_exists(prefix + std::string(kMegatronIndexSuffix))) return open_megatron(prefix, options);
  DataFile file(path);
  if (auto layout = llmc_layout(file, options)) return {std::move(file), std::move(*layout), options.vocabulary};
  // llm.c's files end in .bin too, so the magic number was checked first.
  if (path.ends_with(kRawSuffix)) {
    require_no_foreign_content(path, head_of(file));
    require_16_bits(file);
    TokenLayout layout = raw_layout(file, options);
    return {std::move(file), std::move(layout), options.vocabulary};
  }
  return open_text(std::move(file), options);
}

/// Returns whether a word of the name marks a validation shard: fineweb_val_000000.bin.
bool is_for_validation(const fs::path& file) {
  std::string word;
  for (const char letter : file.stem().string() + ".") {
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0) {
      word += letter;
    } else {
      if (word == "val" || word == "validation") return true;
      word.clear();
    }
  }
  return false;
}

/// Returns the entries of a folder by name, without hidden ones.
std::vector<fs::path> entries_of(const std::string& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (!entry.path().filename().string().starts_with('.')) entries.push_back(entry.path());
  if (error) reject("cannot read the folder {}: {}", folder, error.message());
  // Directories list entries in any order; names decide, so that all hosts concatenate shards alike.
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<fs::path> ending_in(std::string_view suffix, const std::vector<fs::path>& entries) {
  std::vector<fs::path> files;
  std::ranges::copy_if(entries, std::back_inserter(files), [&](const fs::path& e) { return e.extension() == suffix; });
  return files;
}

/// Returns one line; empty if all entries are read.
std::string ignored_files_note(const std::string& folder, const std::vector<fs::path>& entries,
                               const std::vector<std::string_view>& read) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> names;
  for (const fs::path& entry : entries)
    if (std::ranges::find(read, entry.extension().string()) == read.end()) names.push_back(entry.filename().string());
  if (names.empty()) return "";
  const std::size_t count = names.size();
  names.resize(std::min(count, kNamed));
  return fmt::format("{}: passed over {}{}; only names that end in {} are read", folder, fmt::join(names, ", "),
                     count > kNamed ? fmt::format(" and {} more", count - kNamed) : "", fmt::join(read, " or "));
}

FoundTokens open_folder(const std::string& folder, const TokenOptions& options) {
  constexpr std::string_view kTextSuffix = ".txt";
  const std::vector<fs::path> entries = entries_of(folder);
  const auto shards = ending_in(kRawSuffix, entries);
  const auto texts = ending_in(kTextSuffix, entries);
  for (const fs::path& index : ending_in(kMegatronIndexSuffix, entries))
    require_tokens_of(index.string(), fs::path(index).replace_extension(kMegatronTokensSuffix).string());
  if (shards.empty() && texts.empty()) {
    const std::string others = ignored_files_note(folder, entries, {kRawSuffix, kTextSuffix});
    reject("the folder {} has neither .bin nor .txt files; expected shards of tokens or text{}{}", folder,
           others.empty() ? "" : "; ", others);
  }
  if (!shards.empty() && !texts.empty())
    reject("the folder {} has .bin and .txt files; expected shards of one kind, or the name of a file", folder);
  // All shards stay open during the run.
  const std::size_t files = shards.empty() ? texts.size() : 2 * shards.size();  // each may have an index
  constexpr std::size_t kOthers = 64;
  require_descriptors(static_cast<std::int64_t>(files + kOthers), fmt::format("the shards of {}", folder),
                      "use fewer, larger shards");
  std::vector<TokenFile> training;
  std::vector<TokenFile> validation;
  for (const fs::path& shard : shards.empty() ? texts : shards)
    (is_for_validation(shard) ? validation : training).push_back(open_file(shard.string(), options));
  const TokenFile& first = training.empty() ? validation.front() : training.front();
  FoundTokens found;
  found.format = fmt::format("{} in a folder of {}", first.layout().format, training.size() + validation.size());
  if (!training.empty()) found.training = std::make_shared<const TokenStream>(std::move(training));
  if (!validation.empty()) found.validation = std::make_shared<const TokenStream>(std::move(validation));
  found.ignored_files_note = shards.empty() ? ignored_files_note(folder, entries, {kTextSuffix})
                                            : ignored_files_note(folder, entries, {kRawSuffix, kMegatronIndexSuffix});
  return found;
}

}  // namespace

std::optional<TokenLayout> llmc_layout(const DataFile& file, const TokenOptions& options) {
  if (file.size() < std::int64_t{sizeof(std::int32_t)}) return std::nullopt;
  const auto magic = file.number_at<std::int32_t>(0);
  for (const auto& [other, what] : kOtherLlmcFiles)
    if (magic == other) reject("{}: holds {} of llm.c; expected tokens", file.path(), what);
  if (magic != kLlmcGpt2Magic && magic != kLlmcLlama3Magic) return std::nullopt;
  if (file.size() < std::int64_t{sizeof(LlmcHeader)})
    reject("{}: has {} bytes; the header of llm.c's tokens takes {}", file.path(), file.size(), sizeof(LlmcHeader));
  const auto header = file.number_at<LlmcHeader>(0);
  const bool is_llama = magic == kLlmcLlama3Magic;
  const auto type = llmc_type(header);
  if (!type)
    reject("{}: is version {} of llm.c's tokens; expected {}", file.path(), header.version,
           is_llama ? kLlmcLlama3Version : kLlmcGpt2Version);
  const std::int64_t bytes = file.size() - std::int64_t{sizeof(LlmcHeader)};
  // Catches truncated downloads.
  if (header.tokens < 1 || header.tokens * width_of(*type) != bytes)
    reject("{}: counts {} tokens of {} bytes in its header, but {} bytes follow the header", file.path(), header.tokens,
           width_of(*type), bytes);
  const std::int64_t first_of_document = is_llama ? kLlmcLlama3EndOfText : kLlmcGpt2EndOfText;
  return TokenLayout{.offset = sizeof(LlmcHeader),
                     .count = header.tokens,
                     .type = *type,
                     .format = "llm.c tokens",
                     .mark = DocumentMark{options.end_of_document.value_or(first_of_document), true}};
}

FoundTokens open_tokens(const std::string& path, const TokenOptions& options) {
  if (is_folder(path)) return open_folder(path, options);
  std::vector<TokenFile> files;
  files.push_back(open_file(path, options));
  FoundTokens found;
  found.format = files.front().layout().format;
  found.training = std::make_shared<const TokenStream>(std::move(files));
  return found;
}

}  // namespace chimera

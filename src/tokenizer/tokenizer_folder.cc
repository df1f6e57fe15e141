#include "tokenizer/tokenizer_folder.h"

#include <algorithm>
#include <set>

#include "core/content.h"
#include "core/files.h"
#include "core/printable.h"
#include "core/reject.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/pipeline_json.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_piece_model.h"

// main_tokenizer_file() finds the file that decides the kind, files_of() the other files of that kind, and
// config_beside() the settings next to them. open_file() then makes the tokenizer from the texts;
// tokenizer_from_merges() and tokenizer_from_words() do so for the two older kinds, tokenizer_json.cc for the third.

namespace chimera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr const char* kEndOfDocument = "eos_token";
constexpr const char* kVocabulary = kTokenizerNames[1];
constexpr const char* kWords = kTokenizerNames[2];
constexpr const char* kMerges = "merges.txt";
constexpr const char* kAddedTokens = "added_tokens.json";
/// Files that only other programs read.
constexpr const char* kOfOthers[] = {"special_tokens_map.json", "chat_template.jinja"};

template <class Take>
void for_lines(const std::string& text, const std::string& source, Take take) {
  if (text.starts_with("\xEF\xBB\xBF"))
    throw ConfigError(source + ": begins with a byte order mark, which would be part of a token; save it without one");
  if (const auto place = find_invalid_utf8(text)) reject("{}: byte {} is not valid UTF-8", source, *place);
  std::size_t number = 1;
  for (std::size_t start = 0; start < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line = std::string_view(text).substr(start, end - start);
    // Files that were written on Windows.
    if (line.ends_with('\r')) line.remove_suffix(1);
    take(line, number);
    start = end + 1;
  }
}

std::vector<std::pair<std::string, std::string>> read_merges(const std::string& text, const std::string& source) {
  std::vector<std::pair<std::string, std::string>> merges;
  for_lines(text, source, [&](std::string_view line, std::size_t number) {
    if (line.starts_with("#version")) return;
    // No token contains a blank: byte-level BPE writes it as a letter.
    const std::size_t blank = line.find(' ');
    if (blank == line.npos || blank == 0 || blank + 1 == line.size() || line.find(' ', blank + 1) != line.npos)
      reject("{}: line {}: expected two tokens with a blank between them", source, number);
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
  });
  return merges;
}

TokenizerConfig config_beside(const fs::path& path, bool with_listed) {
  TokenizerConfig config;
  if (const fs::path file = path.parent_path() / kTokenizerConfig; path_exists(file))
    config = read_tokenizer_config(read_whole(file.string()), file.string());
  if (const fs::path file = path.parent_path() / kAddedTokens; with_listed && path_exists(file))
    add_listed_tokens(read_whole(file.string()), file.string(), config);
  return config;
}

/// Throws ConfigError if the class, without the suffix Fast, is not in `names`.
void require_class(const TokenizerConfig& config, std::initializer_list<const char*> names, const std::string& source) {
  std::string_view kind = config.tokenizer_class;
  if (kind.empty()) return;
  // The Fast class of transformers is the same tokenizer in Rust.
  if (kind.ends_with("Fast")) kind.remove_suffix(4);
  if (std::find(names.begin(), names.end(), kind) != names.end()) return;
  reject(
      "{}: the tokenizer_class {} has another pipeline than {}, the only one that this file supports; save a "
      "tokenizer.json",
      source, printable(config.tokenizer_class), *names.begin());
}

fs::path sibling(const fs::path& path, std::string_view from, std::string_view to) {
  // Both names end in one of the usual names, behind a common prefix.
  std::string name = path.filename().string();
  name.replace(name.size() - from.size(), from.size(), to);
  return path.parent_path() / name;
}

/// The first file determines the kind.
std::vector<TokenizerFile> files_of(const fs::path& path) {
  const std::string name = path.filename().string();
  const TokenizerFile config = {(path.parent_path() / kTokenizerConfig).string(), kTokenizerConfig};
  const TokenizerFile added = {(path.parent_path() / kAddedTokens).string(), kAddedTokens};
  // Any file of a pair finds the other one, also with a common prefix: gpt2-vocab.json, gpt2-merges.txt.
  if (name.ends_with(kVocabulary))
    return {{path.string(), kVocabulary}, {sibling(path, kVocabulary, kMerges).string(), kMerges}, config, added};
  if (name.ends_with(kMerges))
    return {{sibling(path, kMerges, kVocabulary).string(), kVocabulary}, {path.string(), kMerges}, config, added};
  if (name.ends_with(".txt")) return {{path.string(), kWords}, config, added};
  // Any other name: users rename such files, for example to my-tokenizer.json.
  return {{path.string(), kTokenizerJson}, config};
}

std::string read_downloaded(const std::string& path) {
  std::string text = read_whole(path);
  require_downloaded_content(path, text);
  return text;
}

/// Throws ConfigError if merges make less than half of the tokens of several letters, except those like <name>.
void require_merges_of(const BpeParts& bpe, const std::string& vocabulary_source, const std::string& merges_source) {
  std::set<std::string> merged;
  // Merges of another tokenizer open without an error, since most short tokens are common: compare what they make.
  for (const auto& [left, right] : bpe.merges) merged.insert(left + right);
  std::size_t long_tokens = 0;
  std::size_t made = 0;
  for (const auto& [token, id] : bpe.vocabulary) {
    std::size_t end = 0;
    if (token.empty() || (token.front() == '<' && token.back() == '>')) continue;
    static_cast<void>(next_character(token, end));
    if (end == token.size()) continue;
    ++long_tokens;
    if (merged.contains(token)) ++made;
  }
  if (2 * made >= long_tokens) return;
  reject("{}: makes {} of the {} tokens of several letters in {}; give the merges that were saved with this vocabulary",
         merges_source, made, long_tokens, vocabulary_source);
}

std::unique_ptr<Tokenizer> open_file(const fs::path& path) {
  const std::vector<TokenizerFile> files = files_of(path);
  const auto& [source, name] = files.front();
  const TokenizerConfig config = config_beside(path, name != kTokenizerJson);
  const std::string text = read_downloaded(source);
  if (name == kVocabulary) {
    const std::string& merges = files[1].path;
    return tokenizer_from_merges(text, source, read_downloaded(merges), merges, config);
  }
  if (name == kWords) return tokenizer_from_words(text, source, config);
  return tokenizer_from_json(text, source, config);
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_merges(const std::string& vocabulary, const std::string& vocabulary_source,
                                                 const std::string& merges, const std::string& merges_source,
                                                 const TokenizerConfig& config) {
  require_class(config, {"GPT2Tokenizer"}, vocabulary_source);
  const nlohmann::json json = parse_json(vocabulary, vocabulary_source);
  BpeParts bpe;
  bpe.vocabulary = read_vocabulary(JsonValue(json, vocabulary_source));
  bpe.merges = read_merges(merges, merges_source);
  bpe.byte_level = true;
  PipelineParts parts;
  parts.model = make_bpe_model(bpe, merges_source);
  require_merges_of(bpe, vocabulary_source, merges_source);
  parts.pre_tokenizer = {WordPattern::Gpt2};
  parts.decoder = {ByteLevelDecoding{}};
  parts.added = special_tokens(config, {{kEndOfDocument, kEndOfText}, {"unk_token", kEndOfText}}, bpe.vocabulary,
                               vocabulary_source);
  parts.end_of_document = config.token(kEndOfDocument);
  parts.vocabulary.assign(bpe.vocabulary.begin(), bpe.vocabulary.end());
  return make_pipeline_tokenizer(std::move(parts));
}

std::unique_ptr<Tokenizer> tokenizer_from_words(const std::string& text, const std::string& source,
                                                const TokenizerConfig& config) {
  require_class(config, {"BertTokenizer", "DistilBertTokenizer"}, source);
  WordPieceParts words;
  for_lines(text, source, [&](std::string_view line, std::size_t number) {
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    if (line.empty()) reject("{}: line {} is empty; expected a token", source, number);
    // The id of a token is its line.
    if (!words.vocabulary.emplace(line, static_cast<TokenId>(number - 1)).second)
      reject("{}: line {}: '{}' is given twice; leave one of them out", source, number, printable(line));
  });
  const std::map<std::string, std::string> usual = {{"unk_token", "[UNK]"},
                                                    {"sep_token", "[SEP]"},
                                                    {"cls_token", "[CLS]"},
                                                    {"pad_token", "[PAD]"},
                                                    {"mask_token", "[MASK]"}};
  PipelineParts parts;
  parts.added = special_tokens(config, usual, words.vocabulary, source);
  parts.end_of_document = config.token(kEndOfDocument);
  const auto find = [&](const std::string& field) {
    const std::string named = config.token(field);
    const auto found = words.vocabulary.find(named.empty() ? usual.at(field) : named);
    return found == words.vocabulary.end() ? TokenId{-1} : found->second;
  };
  words.unknown = find("unk_token");
  if (words.unknown < 0) throw ConfigError(source + ": '[UNK]' is missing; expected BERT's vocabulary, a token a line");
  if (const TokenId cls = find("cls_token"), sep = find("sep_token"); cls >= 0 && sep >= 0)
    parts.input = {cls, kTextPlace, sep};
  parts.normalizer = {config.bert};
  parts.pre_tokenizer = {BertWordStep{}};
  parts.decoder = {WordPieceDecoding{}};
  parts.vocabulary.assign(words.vocabulary.begin(), words.vocabulary.end());
  parts.model = make_word_piece_model(std::move(words));
  return make_pipeline_tokenizer(std::move(parts));
}

std::map<std::string, std::string> tokenizer_texts(const std::string& path) {
  std::map<std::string, std::string> texts;
  if (path.empty()) return texts;
  for (const TokenizerFile& file : tokenizer_files(path)) texts[file.name] = read_whole(file.path);
  return texts;
}

std::optional<TokenizerFile> main_tokenizer_file(const std::string& path) {
  if (path == kBytesName) return std::nullopt;
  if (!is_folder(path)) return files_of(path).front();
  for (const char* name : kTokenizerNames)
    if (path_exists(fs::path(path) / name)) return TokenizerFile{(fs::path(path) / name).string(), name};
  return std::nullopt;
}

bool makes_bytes(const std::string& path) {
  if (path == kBytesName) return true;
  const std::optional<TokenizerFile> file = main_tokenizer_file(path);
  if (!file || file->name != kTokenizerJson) return false;
  constexpr std::uintmax_t kMax = 1 << 16;  // far above the size of byte_tokenizer_json()
  std::error_code error;
  if (!is_file(file->path) || fs::file_size(file->path, error) > kMax) return false;
  return is_byte_tokenizer_json(read_whole(file->path));
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) {
  if (path == kBytesName) return make_byte_tokenizer();
  std::error_code error;
  if (!fs::exists(path, error) && !error)  // Perhaps the recipe's
    reject("the tokenizer {} does not exist; give another --tokenizer, or make one: `chimera tokenizer train`", path);
  if (const auto file = main_tokenizer_file(path)) return open_file(file->path);
  throw ConfigError(path + ": holds no tokenizer; expected tokenizer.json, vocab.json and merges.txt, or vocab.txt");
}

std::vector<TokenizerFile> tokenizer_files(const std::string& path) {
  if (path == kBytesName) return {};
  std::vector<TokenizerFile> files;
  const bool is_whole_folder = is_folder(path);
  const fs::path folder = is_whole_folder ? fs::path(path) : fs::path(path).parent_path();
  const auto add = [&](const char* name) { files.push_back({.path = (folder / name).string(), .name = name}); };
  if (is_whole_folder)
    for (const char* name :
         {kTokenizerJson, kTokenizerConfig, kAddedTokens, kVocabulary, kMerges, kWords, "tokenizer.model"})
      add(name);
  else
    files = files_of(path);
  for (const char* name : kOfOthers) add(name);
  std::erase_if(files, [](const TokenizerFile& file) { return !is_file(file.path); });
  return files;
}

}  // namespace chimera

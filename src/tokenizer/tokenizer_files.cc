#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/pipeline_json.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_piece_model.h"

namespace chimera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEndOfText = "<|endoftext|>";

/// Calls `take(line, number)` for the lines of a text, numbered from 1, without their ends.
template <class Take>
void for_lines(const std::string& text, const std::string& source, Take take) {
  if (const auto place = find_invalid_utf8(text)) {
    throw ConfigError(fmt::format("{}: byte {} is not valid UTF-8", source, *place));
  }
  std::size_t number = 1;
  for (std::size_t start = 0; start < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line = std::string_view(text).substr(start, end - start);
    if (line.ends_with('\r')) line.remove_suffix(1);
    take(line, number);
    start = end + 1;
  }
}

std::vector<std::pair<std::string, std::string>> read_merges(const std::string& text, const std::string& source) {
  std::vector<std::pair<std::string, std::string>> merges;
  for_lines(text, source, [&](std::string_view line, std::size_t number) {
    if (line.starts_with("#version")) return;
    const std::size_t blank = line.find(' ');
    if (blank == line.npos || blank == 0 || blank + 1 == line.size() || line.find(' ', blank + 1) != line.npos) {
      throw ConfigError(fmt::format("{}: line {}: expected two tokens with a blank between them", source, number));
    }
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
  });
  return merges;
}

AddedToken special_token(const std::string& content, TokenId id) {
  return {.id = id, .content = content, .normalized = false, .special = true};
}

/// tokenizer_config.json, as far as it matters.
struct FolderConfig {
  std::string end_of_document;
  std::string tokenizer_class;
  bool lowercase = true;
};

FolderConfig read_config(const fs::path& folder) {
  const fs::path path = folder / "tokenizer_config.json";
  FolderConfig config;
  if (!fs::exists(path)) return config;
  const nlohmann::json json = parse_json(read_whole(path.string()), path.string());
  const JsonValue file(json, path.string());
  if (!json.is_object()) file.fail(fmt::format("expected an object, found {}", json.type_name()));
  config.tokenizer_class = text_or(file, "tokenizer_class", "");
  config.lowercase = truth_or(file, "do_lower_case", true);
  if (is_set(file, "eos_token")) {
    const JsonValue token = file.field("eos_token");
    config.end_of_document = json["eos_token"].is_object() ? token.text("content") : token.text();
  }
  return config;
}

std::unique_ptr<Tokenizer> open_merges(const fs::path& vocabulary, const fs::path& merges) {
  const std::string kind = read_config(vocabulary.parent_path()).tokenizer_class;
  if (!kind.empty() && !kind.starts_with("GPT2Tokenizer")) {
    throw ConfigError(
        fmt::format("{}: {} is not GPT-2's pipeline, the only one that vocab.json and merges.txt have here; "
                    "save a tokenizer.json",
                    vocabulary.string(), kind));
  }
  return tokenizer_from_merges(read_whole(vocabulary.string()), vocabulary.string(), read_whole(merges.string()),
                               merges.string());
}

/// The path with `from` at its end replaced.
fs::path sibling(const fs::path& path, std::string_view from, std::string_view to) {
  std::string name = path.filename().string();
  name.replace(name.size() - from.size(), from.size(), to);
  return path.parent_path() / name;
}

std::unique_ptr<Tokenizer> open_file(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.ends_with("vocab.json")) return open_merges(path, sibling(path, "vocab.json", "merges.txt"));
  if (name.ends_with("merges.txt")) return open_merges(sibling(path, "merges.txt", "vocab.json"), path);
  const FolderConfig config = read_config(path.parent_path());
  const std::string text = read_whole(path.string());
  if (name.ends_with(".txt")) return tokenizer_from_words(text, path.string(), config.lowercase);
  return tokenizer_from_json(text, path.string(), config.end_of_document);
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_merges(const std::string& vocabulary, const std::string& vocabulary_source,
                                                 const std::string& merges, const std::string& merges_source) {
  const nlohmann::json json = parse_json(vocabulary, vocabulary_source);
  BpeParts bpe;
  bpe.vocabulary = read_vocabulary(JsonValue(json, vocabulary_source));
  bpe.merges = read_merges(merges, merges_source);
  bpe.byte_level = true;
  PipelineParts parts;
  parts.model = std::make_unique<BpeModel>(bpe, merges_source);
  parts.pre_tokenizer = PreTokenizer({WordStep{WordPattern::Gpt2}});
  parts.decoder = Decoder({ByteLevelDecoding{}});
  if (const auto end = bpe.vocabulary.find(kEndOfText); end != bpe.vocabulary.end()) {
    parts.added.push_back(special_token(kEndOfText, end->second));
  }
  parts.vocabulary.assign(bpe.vocabulary.begin(), bpe.vocabulary.end());
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> tokenizer_from_words(const std::string& text, const std::string& source, bool lowercase) {
  WordPieceParts words;
  for_lines(text, source, [&](std::string_view line, std::size_t number) {
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    if (line.empty()) throw ConfigError(fmt::format("{}: line {} is empty; expected a token", source, number));
    if (!words.vocabulary.emplace(line, static_cast<TokenId>(number - 1)).second) {
      throw ConfigError(
          fmt::format("{}: line {}: '{}' stands here twice; leave one of them out", source, number, printable(line)));
    }
  });
  const auto find = [&](const char* token) {
    const auto found = words.vocabulary.find(token);
    return found == words.vocabulary.end() ? TokenId{-1} : found->second;
  };
  words.unknown = find("[UNK]");
  if (words.unknown < 0) throw ConfigError(source + ": '[UNK]' is missing; expected BERT's vocabulary, a token a line");
  PipelineParts parts;
  for (const char* token : {"[UNK]", "[SEP]", "[CLS]", "[PAD]", "[MASK]"}) {
    if (find(token) >= 0) parts.added.push_back(special_token(token, find(token)));
  }
  if (const TokenId cls = find("[CLS]"), sep = find("[SEP]"); cls >= 0 && sep >= 0) {
    parts.single = {{.token = cls}, {}, {.token = sep}};
    parts.pair = {{.token = cls}, {}, {.token = sep}, {.second = true, .type = 1}, {.token = sep, .type = 1}};
  }
  parts.normalizer = Normalizer({BertStep{.strip_accents = lowercase, .lowercase = lowercase}});
  parts.pre_tokenizer = PreTokenizer({BertWordStep{}});
  parts.decoder = Decoder({WordPieceDecoding{}});
  parts.vocabulary.assign(words.vocabulary.begin(), words.vocabulary.end());
  parts.model = std::make_unique<WordPieceModel>(std::move(words));
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) {
  if (path == "bytes") return std::make_unique<ByteTokenizer>();
  std::error_code error;
  if (!fs::is_directory(path, error)) return open_file(path);
  for (const char* name : {"tokenizer.json", "vocab.json", "vocab.txt"}) {
    if (fs::exists(fs::path(path) / name, error)) return open_file(fs::path(path) / name);
  }
  throw ConfigError(path + ": holds no tokenizer; expected tokenizer.json, vocab.json and merges.txt, or vocab.txt");
}

}  // namespace chimera

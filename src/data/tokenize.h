#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/choices.h"
#include "data/text_inputs.h"
#include "data/token_format.h"
#include "data/token_writer.h"

// Converts text files to token files: `chimera tokenize`.

namespace chimera {

enum class InvalidText : std::uint8_t { Refuse, Replace };
template <>
inline constexpr auto kNames<InvalidText> = std::to_array<Named<InvalidText>>({{InvalidText::Refuse, "refuse"},
                                                                               {InvalidText::Replace, "replace"}});

enum class EmptyDocument : std::uint8_t { Refuse, Skip, Keep };
template <>
inline constexpr auto kNames<EmptyDocument> = std::to_array<Named<EmptyDocument>>({{EmptyDocument::Refuse, "refuse"},
                                                                                   {EmptyDocument::Skip, "skip"},
                                                                                   {EmptyDocument::Keep, "keep"}});

struct EncodingOptions {
  std::string field = "text";             ///< JSONL field
  std::optional<TokenType> type = {};     ///< nothing: as text, a line "12 7 9\n" per document
  std::optional<TokenId> separator = {};  ///< token between documents
  bool separator_first = false;           ///< before each document, not after it
  InvalidText invalid = InvalidText::Refuse;
  EmptyDocument empty = EmptyDocument::Refuse;
};

/// The last document may continue in the next block.
struct EncodedBlock {
  std::string tokens = {};             ///< as stored in the file
  std::vector<std::size_t> ends = {};  ///< offsets in `tokens` of the documents that end here
  std::int64_t ids = 0;
  std::int64_t skipped = 0;  ///< empty documents
  std::int64_t input_bytes = 0;
  InputPlace begin;
  InputPlace end;
};

/// Not thread-safe. Throws ConfigError, naming file and line or byte, for malformed input.
class BlockEncoder {
 public:
  /// `tokenizer` and `paths` must outlive the encoder.
  BlockEncoder(const Tokenizer& tokenizer, const std::vector<std::string>& paths, EncodingOptions options);
  ~BlockEncoder();

  [[nodiscard]] EncodedBlock encode(InputBlock& block);

 private:
  struct Json;
  void encode_text(const InputBlock& block);
  void encode_lines(InputBlock& block);
  void encode_line(InputBlock& block, std::size_t start, std::size_t size, std::int64_t line);
  void put(bool begins, bool ends, const std::string& place);
  void put_ids();
  [[nodiscard]] std::string name(const InputBlock& block) const;

  const std::vector<std::string>& paths_;
  EncodingOptions options_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<Json> json_;
  TokenIds ids_;
  EncodedBlock done_;
};

struct TokenizeOptions {
  Inputs inputs;
  std::string tokenizer;  ///< argument of open_tokenizer()
  std::string output;     ///< prefix of the files; "-": pass ids as text to `print`
  TokenFileFormat format = TokenFileFormat::Megatron;
  std::string end_of_document;  ///< token; empty: the tokenizer's, or for "-" no token; "none": no token
  InvalidText invalid = InvalidText::Refuse;
  EmptyDocument empty = EmptyDocument::Refuse;
  int workers = 1;
  std::int64_t save_every = std::int64_t{256} << 20;  ///< bytes of input
  std::size_t block_bytes = InputReader::kBlockBytes;
  bool overwrite = false;
  std::function<void(const std::string& text)> print = {};
};

/// Progress, including earlier runs except in `bytes` and `seconds`.
struct TokenizeReport {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t skipped = 0;      ///< empty documents
  std::int64_t bytes = 0;        ///< read in this run
  std::int64_t resumed = 0;      ///< bytes read in earlier runs
  std::int64_t total_bytes = 0;  ///< 0: unknown
  double seconds = 0;            ///< since the tokenizer was loaded
  std::vector<std::string> files = {};
};

/// Tokenizes the inputs in order. Progress is saved in PREFIX.resume, and the same call continues from there if the
/// inputs are files and have not changed. Calls `progress` after each block. Throws ConfigError if input, tokenizer or
/// output is invalid, and then deletes files that no call can continue. An output must not be an input, nor exist
/// without `overwrite`.
TokenizeReport tokenize(const TokenizeOptions& options, const std::function<void(const TokenizeReport&)>& progress);

}  // namespace chimera

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

// The documents of a block of input as the bytes of a token file.

// Files of text to files of tokens: `chimera tokenize`.

namespace chimera {

/// What is done with text that is not valid UTF-8.
enum class InvalidText : std::uint8_t { Refuse, Replace };
template <>
inline constexpr auto kNames<InvalidText> = std::to_array<Named<InvalidText>>({{InvalidText::Refuse, "refuse"},
                                                                               {InvalidText::Replace, "replace"}});

/// What is done with a document that has no token.
enum class EmptyDocument : std::uint8_t { Refuse, Skip, Keep };
template <>
inline constexpr auto kNames<EmptyDocument> = std::to_array<Named<EmptyDocument>>({{EmptyDocument::Refuse, "refuse"},
                                                                                   {EmptyDocument::Skip, "skip"},
                                                                                   {EmptyDocument::Keep, "keep"}});

struct EncodingOptions {
  std::string field = "text";             ///< of JSONL
  std::optional<TokenType> type = {};     ///< of the tokens; none: as text, "12 7 9\n" a document
  std::optional<TokenId> separator = {};  ///< a token that stands with each document
  bool separator_first = false;           ///< before it, not behind
  InvalidText invalid = InvalidText::Refuse;
  EmptyDocument empty = EmptyDocument::Refuse;
};

/// A block's documents. A document that a block does not end goes on in the next.
struct EncodedBlock {
  std::string tokens = {};             ///< of all documents, as they lie in the file
  std::vector<std::size_t> ends = {};  ///< behind which byte of `tokens` each of them ends, as far as they end here
  std::int64_t ids = 0;                ///< how many
  std::int64_t skipped = 0;            ///< documents left out because they are empty
  std::int64_t input_bytes = 0;
  InputPlace begin;
  InputPlace end;
};

/// Encodes blocks, of which each thread has its own. Throws ConfigError, naming file and line or byte, for what is
/// malformed.
class BlockEncoder {
 public:
  /// `paths` are those of the inputs; they and the tokenizer must outlive this.
  BlockEncoder(const Tokenizer& tokenizer, const std::vector<std::string>& paths, EncodingOptions options);
  ~BlockEncoder();

  [[nodiscard]] EncodedBlock encode(InputBlock& block);

 private:
  struct Json;
  void encode_text(const InputBlock& block);
  void encode_lines(InputBlock& block);
  void encode_line(InputBlock& block, std::size_t start, std::size_t size, std::int64_t line);
  /// Puts the ids of a document, or of a part of one.
  void put(bool begins, bool ends, const std::string& place);
  void put_ids();
  [[nodiscard]] std::string name(const InputBlock& block) const;

  const Tokenizer& tokenizer_;
  const std::vector<std::string>& paths_;
  EncodingOptions options_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<Json> json_;
  TokenIds ids_;
  EncodedBlock done_;
};

struct TokenizeOptions {
  Inputs inputs;
  std::string tokenizer;  ///< as open_tokenizer has it
  std::string output;     ///< the prefix of the files; "-": ids as text, handed to `print`
  TokenFileFormat format = TokenFileFormat::Megatron;
  std::string end_of_document;  ///< a token; empty: the tokenizer's, or for "-" none; "none": none
  InvalidText invalid = InvalidText::Refuse;
  EmptyDocument empty = EmptyDocument::Refuse;
  int workers = 1;
  std::int64_t save_every = std::int64_t{256} << 20;  ///< bytes of input after which a broken run can go on
  std::size_t block_bytes = InputReader::kBlockBytes;
  std::function<void(const std::string& text)> print = {};
};

/// What has been done, in this run and all.
struct TokenizeReport {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t skipped = 0;      ///< empty documents
  std::int64_t bytes = 0;        ///< of input, of this run
  std::int64_t resumed = 0;      ///< bytes that an earlier run had done
  std::int64_t total_bytes = 0;  ///< of all input; 0: not known
  double seconds = 0;            ///< since the tokenizer was loaded
  std::vector<std::string> files = {};
};

/// Tokenizes everything, in the order of the inputs whatever the workers. The files get their names when they are
/// whole. What is done is noted in PREFIX.resume from time to time; the same call goes on from there, where it reads
/// files that have not changed since, and not a stream. Calls `progress` after each block. Throws ConfigError for
/// anything wrong with input, tokenizer or output; then nothing is left behind but what a call can go on from.
TokenizeReport tokenize(const TokenizeOptions& options, const std::function<void(const TokenizeReport&)>& progress);

}  // namespace chimera

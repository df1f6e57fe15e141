#pragma once
// Tokens as the vocabulary writes them, made text again.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace chimera {

struct ByteLevelDecoding {};  ///< letters to bytes; what is no UTF-8 becomes U+FFFD
struct WordPieceDecoding {    ///< blanks between words
  std::string prefix = "##";
  bool cleanup = true;  ///< no blank before punctuation, as in English
};
struct ReplaceDecoding {
  std::string from;  ///< not empty
  std::string to;
};
struct ByteFallbackDecoding {};  ///< runs of <0xNN> to characters; a run that is no UTF-8 to a U+FFFD for each byte
struct FuseDecoding {};          ///< all tokens are one
struct StripDecoding {           ///< of each token
  std::string content;           ///< one character
  std::size_t start = 0;         ///< at most so many of it at the start
  std::size_t stop = 0;          ///< and at the end
};
struct BlankSignDecoding {  ///< Metaspace
  std::string sign;
  bool drop_first = true;  ///< in the first token it is nothing, not a blank
};
using DecodingStep = std::variant<ByteLevelDecoding, WordPieceDecoding, ReplaceDecoding, ByteFallbackDecoding,
                                  FuseDecoding, StripDecoding, BlankSignDecoding>;

/// Steps, one after the other.
class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(std::vector<DecodingStep> steps) : steps_(std::move(steps)) {}

  /// The text of tokens; where there are no steps, the tokens with blanks between them.
  [[nodiscard]] std::string decode(std::vector<std::string> tokens) const;
  /// Whether what a token becomes depends on how a run of byte tokens ends.
  [[nodiscard]] bool is_open(std::string_view last_token) const;

 private:
  std::vector<DecodingStep> steps_;
};

}  // namespace chimera

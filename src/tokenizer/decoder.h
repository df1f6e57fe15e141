#pragma once

// Token texts back to text: the steps of the decoder in a tokenizer.json, in their order. Each step maps the list of
// token texts to another list; the results are joined.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/normalizer.h"

namespace chimera {

struct ByteLevelDecoding {};  ///< invalid UTF-8 becomes U+FFFD
struct WordPieceDecoding {    ///< blanks between words
  std::string prefix = "##";
  bool cleanup = true;  ///< no blank before English punctuation
};
struct ByteFallbackDecoding {};  ///< runs of <0xNN> to text; each byte of invalid UTF-8 becomes U+FFFD
struct FuseDecoding {};          ///< joins all tokens
struct StripDecoding {           ///< removes `content` from both ends
  std::string content;           ///< one character
  std::size_t start = 0;         ///< maximum number to remove at the start
  std::size_t stop = 0;          ///< maximum number to remove at the end
};
struct BlankSignDecoding {  ///< Metaspace: sign to blank
  std::string sign;
  bool drop_first = true;  ///< the first token loses it instead
};
using DecodingStep = std::variant<ByteLevelDecoding, WordPieceDecoding, ReplaceStep, ByteFallbackDecoding, FuseDecoding,
                                  StripDecoding, BlankSignDecoding>;

/// Steps in their order.
using Decoder = std::vector<DecodingStep>;

/// Without steps, blanks separate the tokens.
[[nodiscard]] std::string decode(const Decoder& decoder, std::vector<std::string> tokens);
/// Returns whether later tokens may change the text of this last one.
[[nodiscard]] bool is_open(const Decoder& decoder, std::string_view last_token);

}  // namespace chimera

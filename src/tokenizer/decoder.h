#pragma once

// The decoder, the last part of a tokenizer (pipeline_tokenizer.h): it makes text of tokens. It has a list of steps,
// which a tokenizer.json names. Each step gets a list of texts, at first the texts of the tokens, and returns another
// list. The texts of the last list are joined.

#include "tokenizer/normalizer.h"

namespace chimera {

/// Replaces the letters of byte-level BPE by their bytes. Invalid UTF-8 becomes U+FFFD.
struct ByteLevelDecoding {};
/// Removes `prefix` from tokens that continue a word, and puts a blank before each other token but the first.
struct WordPieceDecoding {
  std::string prefix = "##";
  bool cleanup = true;  ///< whether to remove blanks before English punctuation and contractions
};
/// Replaces consecutive tokens <0xNN> by the text of these bytes. If it is not valid UTF-8, each of the bytes becomes
/// U+FFFD.
struct ByteFallbackDecoding {};
/// Joins all texts to one.
struct FuseDecoding {};
/// Removes the character `content` from both ends of each text.
struct StripDecoding {
  std::string content;    ///< one character
  std::size_t start = 0;  ///< maximum number to remove at the start
  std::size_t stop = 0;   ///< maximum number to remove at the end
};
/// Replaces a sign for blanks by blanks (Metaspace in tokenizer.json).
struct BlankSignDecoding {
  std::string sign;
  bool drop_first = true;  ///< whether the signs of the first text are removed, and not replaced by blanks
};
using DecodingStep = std::variant<ByteLevelDecoding, WordPieceDecoding, ReplaceStep, ByteFallbackDecoding, FuseDecoding,
                                  StripDecoding, BlankSignDecoding>;

/// The steps of a decoder, in order. ReplaceStep is in normalizer.h.
using Decoder = std::vector<DecodingStep>;

/// Returns the text of tokens. If the decoder has no steps, joins the tokens with blanks.
[[nodiscard]] std::string decode(const Decoder& decoder, std::vector<std::string> tokens);
/// Returns whether a token after `last_token` may change the text of `last_token`, for example complete a character.
[[nodiscard]] bool is_open(const Decoder& decoder, std::string_view last_token);

}  // namespace chimera

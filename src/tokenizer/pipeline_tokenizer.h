#pragma once

// Tokenizers of Hugging Face's files. Such a tokenizer is a sequence of parts that a tokenizer.json describes:
//
//   text -> added tokens -> Normalizer -> added tokens -> PreTokenizer -> words -> WordModel -> ids -> template
//   ids -> token texts -> Decoder -> text
//
// The added tokens are those that are found in the text as a whole, such as <|endoftext|>. The template adds special
// tokens of the model, such as [CLS]. pipeline_json.h reads the parts from a file. A long text may be cut at positions
// that no token contains (Tokenizer::find_cut()), so that blocks can be encoded in parallel.

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/word_cache.h"

namespace chimera {

/// Placeholder for the ids of the text in PipelineParts::input.
inline constexpr TokenId kTextPlace = -1;

/// The parts of a tokenizer, in the order of the picture.
struct PipelineParts {
  std::vector<std::pair<std::string, TokenId>> vocabulary;  ///< without added tokens
  std::vector<AddedToken> added;                            ///< in the order of the file
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<WordModel> model;
  TokenIds input = {kTextPlace};  ///< template of a model's input: special tokens and kTextPlace
  Decoder decoder;
  /// Token that ends a document; empty: a token with a usual name such as <|endoftext|>, if the vocabulary has one
  std::string end_of_document;
};

/// Makes a tokenizer of these parts, which must fit together: `model` and `added` use the ids of `vocabulary`.
[[nodiscard]] std::unique_ptr<Tokenizer> make_pipeline_tokenizer(PipelineParts parts);

}  // namespace chimera

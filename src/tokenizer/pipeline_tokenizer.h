#pragma once

// Tokenizers of Hugging Face's files, as a pipeline of parts that a tokenizer.json names:
//
//   text -> added tokens -> Normalizer -> added tokens -> PreTokenizer -> words -> WordModel -> ids -> template
//   ids -> token texts -> Decoder -> text
//
// pipeline_json.h reads the parts. A long text may be cut where no token reaches across (find_cut()), so that blocks
// can be encoded in parallel.

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/word_cache.h"

namespace chimera {

/// Place of the text among the special tokens of PipelineParts::input.
inline constexpr TokenId kTextPlace = -1;

struct PipelineParts {
  std::vector<std::pair<std::string, TokenId>> vocabulary;
  std::vector<AddedToken> added;  ///< in the order of the file
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<WordModel> model;
  TokenIds input = {kTextPlace};  ///< template of a model's input
  Decoder decoder;
  std::string end_of_document;  ///< empty: a usual token, if it exists
};

[[nodiscard]] std::unique_ptr<Tokenizer> make_pipeline_tokenizer(PipelineParts parts);

}  // namespace chimera

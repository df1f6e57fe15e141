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

/// Special token or text of a template.
struct TemplatePlace {
  TokenId token = -1;
  bool second = false;  ///< instead of the first
  TokenId type = 0;
};

struct PipelineParts {
  std::vector<std::pair<std::string, TokenId>> vocabulary;
  std::vector<AddedToken> added;  ///< in the order of the file
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<WordModel> model;
  std::vector<TemplatePlace> single = {{}};
  std::vector<TemplatePlace> pair = {{}, {.second = true, .type = 1}};
  Decoder decoder;
  std::string end_of_document;  ///< empty: a usual token, if it exists
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts);

  [[nodiscard]] std::string name() const override { return parts_.model->name(); }
  [[nodiscard]] std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(texts_.size()); }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder() const override;
  [[nodiscard]] std::optional<TokenId> find_token(std::string_view token) const override;
  [[nodiscard]] std::optional<std::string> token_text(TokenId id) const override;
  [[nodiscard]] bool is_special(TokenId id) const override;
  [[nodiscard]] std::optional<TokenId> end_of_document() const override;
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool with_special) const override;
  [[nodiscard]] bool is_open(TokenId last) const override;
  [[nodiscard]] Template with_special(const TokenIds& first) const override;
  [[nodiscard]] Template with_special(const TokenIds& first, const TokenIds& second) const override;
  [[nodiscard]] std::size_t find_cut(std::string_view text, std::size_t least) const override;

 private:
  class TextEncoder;
  /// Whether a text may be cut before a single blank between a non-space and a letter, without a change of its tokens.
  enum class CutRule {
    Never,        ///< tokens may depend on text across the cut
    Always,       ///< a word starts there
    ModelDecides  ///< a word extends across the cut
  };
  [[nodiscard]] static CutRule cut_rule(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer);
  [[nodiscard]] bool cuts_at(std::string_view text, std::size_t place) const;
  [[nodiscard]] std::string last_word(std::string_view text) const;

  struct TokenText {
    std::string text;
    bool exists = false;
    bool special = false;
    std::string decoded = {};  // for decoding, if the normalizer changes an added token
  };
  PipelineParts parts_;
  TokenFinder raw_;         // tokens in the original text
  TokenFinder normalized_;  // tokens in the normalized text
  std::vector<TokenText> texts_;
  TextMap<TokenId> ids_;
  CutRule cut_rule_;  // Never also if an added token may extend across a blank
};

}  // namespace chimera

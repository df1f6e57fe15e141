#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/word_piece_model.h"

// Whether the parts of a pipeline let a text be encoded in two parts.

// The tokenizers of Hugging Face's files: added tokens, a normalizer, a pre-tokenizer, a model, a template, a decoder.

namespace chimera {

/// Whether a text may be cut before a single blank between a character that is no white space and a letter: whether
/// both parts, the second of which goes on instead of beginning, then have the tokens of the whole.
enum class CutRule {
  Never,        ///< perhaps not: what stands on one side may change tokens of the other
  Always,       ///< a word begins there
  ModelDecides  ///< it is inside a word, as it stands in the text but for signs in place of blanks
};

[[nodiscard]] CutRule cut_rule(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer);

/// A place of a template: a special token, or a text.
struct TemplatePlace {
  TokenId token = -1;   ///< negative: a text stands here
  bool second = false;  ///< which text
  TokenId type = 0;
};

/// All that a tokenizer is made of.
struct PipelineParts {
  std::vector<std::pair<std::string, TokenId>> vocabulary;  ///< of the model
  std::vector<AddedToken> added;                            ///< in the order of the file
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<WordModel> model;
  std::vector<TemplatePlace> single = {{}};
  std::vector<TemplatePlace> pair = {{}, {.second = true, .type = 1}};
  Decoder decoder;
  std::string end_of_document;  ///< the token, where one is named; empty: found among the usual ones
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
  friend class PipelineEncoder;
  [[nodiscard]] bool cuts_at(std::string_view text, std::size_t place) const;
  /// The last word of a text that goes on from another.
  [[nodiscard]] std::string last_word(std::string_view text) const;

  struct TokenText {
    std::string text;
    bool exists = false;
    bool special = false;
    std::string decoded = {};  // of an added token that the normalizer changes: what it is when decoded, special or not
  };
  PipelineParts parts_;
  TokenFinder raw_;         // finds added tokens in the text as it stands
  TokenFinder normalized_;  // and in the normalised one
  std::vector<TokenText> texts_;
  TextMap<TokenId> ids_;
  CutRule cut_rule_;  // Never also where an added token may reach across a blank
};

}  // namespace chimera

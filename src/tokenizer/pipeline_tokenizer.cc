#include "tokenizer/pipeline_tokenizer.h"

#include <algorithm>
#include <utility>

#include "tokenizer/unicode.h"

// TextEncoder goes from a text to ids, with buffers and a cache of its own thread. PipelineTokenizer holds what all
// threads share. The larger rest decides where a text may be cut (find_cut()), so that several threads can encode its
// parts with the same result: cut_rule_of() decides what holds for all texts of a tokenizer, cuts_at() looks at one
// place.

namespace chimera {
namespace {

bool has_white_space(std::string_view text) {
  for (std::size_t i = 0; i < text.size();)
    if ((character_table()[next_character(text, i)] & kSpace) != 0) return true;
  return false;
}

/// Normal forms never affect a blank.
bool keeps_white_space(const Normalizer& normalizer) {
  return std::ranges::all_of(normalizer, [](const NormalizerStep& step) {
    if (const auto* replace = std::get_if<ReplaceStep>(&step))
      return !replace->to.empty() && !has_white_space(replace->to) && !has_white_space(replace->from);
    return !std::holds_alternative<BertStep>(step);
  });
}

/// BERT's normalizer may double a blank, but never removes it.
bool is_bert(const Normalizer& normalizer) {
  return normalizer.size() == 1 && std::holds_alternative<BertStep>(normalizer.front());
}

bool changes_blanks_alone(const Normalizer& normalizer) {
  return std::ranges::all_of(normalizer, [](const NormalizerStep& step) {
    const auto* replace = std::get_if<ReplaceStep>(&step);
    return std::holds_alternative<PrependStep>(step) ||
           (replace != nullptr && replace->from == " " && replace->to == "\u2581");
  });
}

/// Returns whether a token may depend on text across a blank.
bool reaches_across_blanks(const AddedToken& token, std::string_view pattern) {
  for (const std::string_view blank : {" ", "\u2581"})
    if (pattern.find(blank, 1) != pattern.npos || (token.single_word && pattern.starts_with(blank))) return true;
  return token.lstrip || token.rstrip;
}

/// Whether a text may be cut before a single blank between a non-space and a letter, without a change of its tokens.
enum class CutRule {
  Never,        // tokens may depend on text across the cut
  Always,       // a word starts there
  ModelDecides  // a word extends across the cut
};

/// Example: GPT-2 begins a word at each blank before a letter, so its texts may always be cut there. SentencePiece has
/// no words, so its model decides.
CutRule cut_rule_of(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer) {
  // A cut is safe if no step moves the boundary: the normalizer keeps blanks, and a pre-tokenizer begins a word at
  // the blank. A sign that replaces the blank before that step hides it.
  bool has_signs = false;  // signs for blanks
  for (const WordsStep& step : pre_tokenizer) {
    const auto* signs = std::get_if<BlankSignStep>(&step);
    const bool drops_blanks = std::holds_alternative<BertWordStep>(step);
    if (drops_blanks || std::holds_alternative<WordPattern>(step) || (signs != nullptr && signs->split)) {
      // A word begins at a blank before a letter, or behind it.
      const bool keeps = keeps_white_space(normalizer) || (drops_blanks && is_bert(normalizer));
      return keeps && !has_signs ? CutRule::Always : CutRule::Never;
    }
    has_signs = has_signs || signs != nullptr;
  }
  return changes_blanks_alone(normalizer) ? CutRule::ModelDecides : CutRule::Never;
}

class TextEncoder final : public Encoder {
 public:
  TextEncoder(const PipelineParts& parts, const TokenFinder& raw, const TokenFinder& normalized)
      : parts_(parts), raw_(raw), normalized_(normalized) {}

  void encode(std::string_view text, TokenIds& ids, bool continues) override {
    constexpr std::size_t kBytesPerToken = 3;  // an estimate
    ids.reserve(ids.size() + text.size() / kBytesPerToken);
    // Only a piece at the very start gets the prefix of a document.
    split_off_tokens(raw_, text, pieces_, ids, [&](std::string_view piece, bool first) {
      encode_piece(piece, ids, first && !continues, continues && first);
    });
  }

 private:
  /// Appends the ids of the added tokens in the text, and calls `encode` for the text between them.
  template <class Encode>
  static void split_off_tokens(const TokenFinder& finder, std::string_view text, std::vector<TextPiece>& pieces,
                               TokenIds& ids, const Encode& encode) {
    pieces.clear();
    finder.split(text, pieces);
    for (const TextPiece& piece : pieces)
      if (piece.token >= 0)
        ids.push_back(piece.token);
      else
        encode(piece.text, piece.text.data() == text.data());
  }

  void encode_piece(std::string_view text, TokenIds& ids, bool first, bool continues) {
    text = normalize(parts_.normalizer, text, normal_text_, continues);
    // The pieces lie in `normal_text_`, or in the text itself, until the next call; their words are encoded before it.
    split_off_tokens(normalized_, text, normalized_pieces_, ids,
                     [&](std::string_view piece, bool at_start) { encode_words(piece, ids, first && at_start); });
  }

  void encode_words(std::string_view text, TokenIds& ids, bool first) {
    const WordModel& model = *parts_.model;
    split(parts_.pre_tokenizer, text, first, buffers_, [&](std::string_view word) {
      if (!cache_.append(word, ids)) model.encode(word, ids, cache_);
    });
  }

  const PipelineParts& parts_;
  const TokenFinder& raw_;
  const TokenFinder& normalized_;
  WordCache cache_;
  WordBuffers buffers_;
  std::string normal_text_;
  std::vector<TextPiece> pieces_;
  std::vector<TextPiece> normalized_pieces_;
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts)
      : parts_(std::move(parts)), cut_rule_(cut_rule_of(parts_.normalizer, parts_.pre_tokenizer)) {
    const auto note = [this](const std::string& text, TokenId id, bool special) {
      // Ids may have gaps; the elements there do not exist.
      if (texts_.size() <= static_cast<std::size_t>(id)) texts_.resize(static_cast<std::size_t>(id) + 1);
      texts_[static_cast<std::size_t>(id)] = {.text = text, .exists = true, .special = special};
      ids_.insert_or_assign(text, id);
    };
    for (const auto& [text, id] : parts_.vocabulary) note(text, id, false);
    // Special tokens win if another token has the same text.
    for (const bool special : {true, false}) {
      for (const AddedToken& token : parts_.added) {
        if (token.special != special) continue;
        note(token.content, token.id, special);
        std::string buffer;
        const std::string_view pattern =
            token.normalized ? normalize(parts_.normalizer, token.content, buffer) : std::string_view(token.content);
        (token.normalized ? normalized_ : raw_).add(token, pattern);
        // tokenizers decodes such a token to its normalized text.
        if (pattern != token.content) texts_[static_cast<std::size_t>(token.id)].decoded = pattern;
        if (reaches_across_blanks(token, pattern)) cut_rule_ = CutRule::Never;
      }
    }
    // `texts_` and `ids_` hold it now.
    parts_.vocabulary.clear();
  }

  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(texts_.size()); }
  std::unique_ptr<Encoder> make_encoder() const override {
    return std::make_unique<TextEncoder>(parts_, raw_, normalized_);
  }
  std::optional<TokenId> find_token(std::string_view token) const override {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  std::optional<std::string> token_text(TokenId id) const override {
    const TokenText* token = find(id);
    return token == nullptr ? std::nullopt : std::optional(token->text);
  }
  std::optional<TokenId> end_of_document() const override {
    if (!parts_.end_of_document.empty()) return find_token(parts_.end_of_document);
    for (const char* token : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]"})
      if (const auto id = find_token(token)) return id;
    return std::nullopt;
  }
  std::string decode(std::span<const TokenId> ids, bool with_special) const override {
    std::vector<std::string> tokens;
    for (const TokenId id : ids) {
      const TokenText* token = find(id);
      if (token == nullptr || (token->decoded.empty() && token->special && !with_special)) continue;
      tokens.push_back(token->decoded.empty() ? token->text : token->decoded);
    }
    return chimera::decode(parts_.decoder, std::move(tokens));
  }
  bool is_open(TokenId last) const override {
    const auto text = token_text(last);
    return text && chimera::is_open(parts_.decoder, *text);
  }
  TokenIds with_special(const TokenIds& text) const override {
    TokenIds ids;
    for (const TokenId token : parts_.input)
      if (token == kTextPlace)
        ids.insert(ids.end(), text.begin(), text.end());
      else
        ids.push_back(token);
    return ids;
  }
  std::size_t find_cut(std::string_view text, std::size_t least) const override {
    if (cut_rule_ == CutRule::Never) return 0;
    // From the end, so that the first part is as long as possible.
    for (std::size_t place = text.size(); place-- > std::max<std::size_t>(least, 1);)
      if (cuts_at(text, place)) return place;
    return 0;
  }

 private:
  struct TokenText {
    std::string text;
    bool exists = false;
    bool special = false;
    std::string decoded = {};  // for decoding, if the normalizer changes an added token
  };
  /// Returns null if there is no such token.
  const TokenText* find(TokenId id) const {
    if (id < 0 || id >= vocabulary_size() || !texts_[static_cast<std::size_t>(id)].exists) return nullptr;
    return &texts_[static_cast<std::size_t>(id)];
  }

  /// Never cuts after an added token, because the next piece may get a prefix.
  bool cuts_at(std::string_view text, std::size_t place) const {
    const CharacterTable& table = character_table();
    if (text[place] != ' ' || place + 1 >= text.size()) return false;
    std::size_t end = place + 1;
    if ((table[next_character(text, end)] & kLetter) == 0) return false;
    const char32_t before = character_before(text, place);
    if ((table[before] & kSpace) != 0) return false;
    const auto ends_there = [&](const AddedToken& token) {
      return !token.normalized && text.substr(0, place).ends_with(token.content);
    };
    if (std::any_of(parts_.added.begin(), parts_.added.end(), ends_there)) return false;
    // Without words, the model must never merge the character before the cut with the blank behind it.
    if (cut_rule_ == CutRule::Always) return true;
    std::string left;
    append_utf8(left, before);
    // The model sees the words that the pre-tokenizer makes, in which a sign may stand for the blank.
    left = last_word(left);
    return !left.empty() && parts_.model->splits_at(left + last_word(text.substr(place, end - place)), left.size());
  }
  std::string last_word(std::string_view text) const {
    std::string normalized;
    std::string last;
    WordBuffers buffers;
    split(parts_.pre_tokenizer, normalize(parts_.normalizer, text, normalized, true), false, buffers,
          [&last](std::string_view word) { last = word; });
    return last;
  }

  PipelineParts parts_;
  // Some added tokens match the text as given, others only after normalization.
  TokenFinder raw_;         // tokens in the original text
  TokenFinder normalized_;  // tokens in the normalized text
  std::vector<TokenText> texts_;
  TextMap<TokenId> ids_;
  CutRule cut_rule_;  // Never also if an added token may extend across a blank
};

}  // namespace

std::unique_ptr<Tokenizer> make_pipeline_tokenizer(PipelineParts parts) {
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace chimera

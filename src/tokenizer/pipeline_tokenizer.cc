#include "tokenizer/pipeline_tokenizer.h"

#include <algorithm>
#include <utility>

#include "tokenizer/unicode.h"

namespace chimera {
namespace {

/// Treatment of a blank before a letter.
enum class WordsAtBlanks {
  Begin,  // starts a word
  Drop,   // separates words
  Ignore,
  Unclear
};

WordsAtBlanks words_at_blanks(const PreTokenizer& pre_tokenizer) {
  using enum WordsAtBlanks;
  bool has_signs = false;  // signs for blanks
  for (const WordsStep& step : pre_tokenizer.steps()) {
    const auto* signs = std::get_if<BlankSignStep>(&step);
    const bool drops = std::holds_alternative<BertWordStep>(step);
    if (drops || std::holds_alternative<WordStep>(step) || (signs != nullptr && signs->split)) {
      if (has_signs) return Unclear;
      return drops ? Drop : Begin;
    }
    has_signs = has_signs || signs != nullptr;
  }
  return Ignore;
}

bool has_white_space(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    if ((character_table()[next_character(text, i)] & kSpace) != 0) return true;
  }
  return false;
}

template <class Holds>
bool holds_of_steps(const Normalizer& normalizer, Holds holds) {
  return std::all_of(normalizer.steps().begin(), normalizer.steps().end(), holds);
}

/// Normal forms never affect a blank.
bool keeps_white_space(const Normalizer& normalizer) {
  return holds_of_steps(normalizer, [](const NormalizerStep& step) {
    if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
      return !replace->to.empty() && !has_white_space(replace->to) && !has_white_space(replace->from);
    }
    return !std::holds_alternative<BertStep>(step);
  });
}

/// BERT's normalizer may double a blank, but never removes it.
bool is_bert(const Normalizer& normalizer) {
  return normalizer.steps().size() == 1 && std::holds_alternative<BertStep>(normalizer.steps().front());
}

bool changes_blanks_alone(const Normalizer& normalizer) {
  return holds_of_steps(normalizer, [](const NormalizerStep& step) {
    const auto* replace = std::get_if<ReplaceStep>(&step);
    return std::holds_alternative<PrependStep>(step) ||
           (replace != nullptr && replace->from == " " && replace->to == "\u2581");
  });
}

/// Returns whether a token may depend on text across a blank.
bool reaches_across_blanks(const AddedToken& token, std::string_view pattern) {
  for (const std::string_view blank : {" ", "\u2581"}) {
    if (pattern.find(blank, 1) != pattern.npos || (token.single_word && pattern.starts_with(blank))) return true;
  }
  return token.lstrip || token.rstrip;
}

Template filled(const std::vector<TemplatePlace>& places, const TokenIds& first, const TokenIds& second) {
  Template result;
  for (const TemplatePlace& place : places) {
    const TokenIds& text = place.second ? second : first;
    if (place.token >= 0) {
      result.ids.push_back(place.token);
    } else {
      result.ids.insert(result.ids.end(), text.begin(), text.end());
    }
    result.types.resize(result.ids.size(), place.type);
  }
  return result;
}

}  // namespace

PipelineTokenizer::CutRule PipelineTokenizer::cut_rule(const Normalizer& normalizer,
                                                       const PreTokenizer& pre_tokenizer) {
  switch (words_at_blanks(pre_tokenizer)) {
    case WordsAtBlanks::Begin: return keeps_white_space(normalizer) ? CutRule::Always : CutRule::Never;
    case WordsAtBlanks::Drop:
      return keeps_white_space(normalizer) || is_bert(normalizer) ? CutRule::Always : CutRule::Never;
    case WordsAtBlanks::Ignore: return changes_blanks_alone(normalizer) ? CutRule::ModelDecides : CutRule::Never;
    case WordsAtBlanks::Unclear: break;
  }
  return CutRule::Never;
}

class PipelineTokenizer::TextEncoder final : public Encoder {
 public:
  explicit TextEncoder(const PipelineTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void encode(std::string_view text, TokenIds& ids, bool continues) override {
    constexpr std::size_t kBytesPerToken = 3;  // an estimate
    ids.reserve(ids.size() + text.size() / kBytesPerToken);
    if (tokenizer_.raw_.empty()) return encode_piece(text, ids, true, continues);
    pieces_.clear();
    tokenizer_.raw_.split(text, pieces_);
    for (const TextPiece& piece : pieces_) {
      if (piece.token >= 0) {
        ids.push_back(piece.token);
      } else {
        const bool first = piece.text.data() == text.data();
        encode_piece(piece.text, ids, first, continues && first);
      }
    }
  }

 private:
  void encode_piece(std::string_view text, TokenIds& ids, bool first, bool continues) {
    text = tokenizer_.parts_.normalizer.apply(text, normalized_, continues);
    first = first && !continues;
    if (tokenizer_.normalized_.empty()) return encode_words(text, ids, first);
    normalized_pieces_.clear();
    tokenizer_.normalized_.split(text, normalized_pieces_);
    for (const TextPiece& piece : normalized_pieces_) {
      if (piece.token >= 0) {
        ids.push_back(piece.token);
      } else {
        encode_words(piece.text, ids, first && piece.text.data() == text.data());
      }
    }
  }

  void encode_words(std::string_view text, TokenIds& ids, bool first) {
    const WordModel& model = *tokenizer_.parts_.model;
    tokenizer_.parts_.pre_tokenizer.split(text, first, buffers_, [&](std::string_view word) {
      if (!cache_.append(word, ids)) model.encode(word, ids, cache_);
    });
  }

  const PipelineTokenizer& tokenizer_;
  WordCache cache_;
  WordBuffers buffers_;
  std::string normalized_;
  std::vector<TextPiece> pieces_;
  std::vector<TextPiece> normalized_pieces_;
};

PipelineTokenizer::PipelineTokenizer(PipelineParts parts)
    : parts_(std::move(parts)), cut_rule_(cut_rule(parts_.normalizer, parts_.pre_tokenizer)) {
  const auto note = [this](const std::string& text, TokenId id, bool special) {
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
          token.normalized ? parts_.normalizer.apply(token.content, buffer) : std::string_view(token.content);
      (token.normalized ? normalized_ : raw_).add(token, pattern);
      if (pattern != token.content) texts_[static_cast<std::size_t>(token.id)].decoded = pattern;
      if (reaches_across_blanks(token, pattern)) cut_rule_ = CutRule::Never;
    }
  }
  parts_.vocabulary.clear();
}

std::unique_ptr<Encoder> PipelineTokenizer::make_encoder() const { return std::make_unique<TextEncoder>(*this); }

std::optional<TokenId> PipelineTokenizer::find_token(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> PipelineTokenizer::token_text(TokenId id) const {
  if (id < 0 || id >= vocabulary_size() || !texts_[static_cast<std::size_t>(id)].exists) return std::nullopt;
  return texts_[static_cast<std::size_t>(id)].text;
}

bool PipelineTokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocabulary_size() && texts_[static_cast<std::size_t>(id)].special;
}

std::optional<TokenId> PipelineTokenizer::end_of_document() const {
  if (!parts_.end_of_document.empty()) return find_token(parts_.end_of_document);
  for (const char* token : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]"}) {
    if (const auto id = find_token(token)) return id;
  }
  return std::nullopt;
}

std::string PipelineTokenizer::decode(std::span<const TokenId> ids, bool with_special) const {
  std::vector<std::string> tokens;
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocabulary_size() || !texts_[static_cast<std::size_t>(id)].exists) continue;
    const TokenText& token = texts_[static_cast<std::size_t>(id)];
    if (!token.decoded.empty()) {
      tokens.push_back(token.decoded);
    } else if (with_special || !token.special) {
      tokens.push_back(token.text);
    }
  }
  return parts_.decoder.decode(std::move(tokens));
}

bool PipelineTokenizer::is_open(TokenId last) const {
  const auto text = token_text(last);
  return text && parts_.decoder.is_open(*text);
}

Template PipelineTokenizer::with_special(const TokenIds& first) const { return filled(parts_.single, first, {}); }

Template PipelineTokenizer::with_special(const TokenIds& first, const TokenIds& second) const {
  return filled(parts_.pair, first, second);
}

/// Never cuts after an added token, because the next piece may get a prefix.
bool PipelineTokenizer::cuts_at(std::string_view text, std::size_t place) const {
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
  if (cut_rule_ == CutRule::Always) return true;
  std::string left;
  append_utf8(left, before);
  left = last_word(left);
  return !left.empty() && parts_.model->splits_at(left + last_word(text.substr(place, end - place)), left.size());
}

std::string PipelineTokenizer::last_word(std::string_view text) const {
  std::string normalized;
  std::string last;
  WordBuffers buffers;
  parts_.pre_tokenizer.split(parts_.normalizer.apply(text, normalized, true), false, buffers,
                             [&last](std::string_view word) { last = word; });
  return last;
}

std::size_t PipelineTokenizer::find_cut(std::string_view text, std::size_t least) const {
  if (cut_rule_ == CutRule::Never) return 0;
  for (std::size_t place = text.size(); place-- > std::max<std::size_t>(least, 1);) {
    if (cuts_at(text, place)) return place;
  }
  return 0;
}

}  // namespace chimera

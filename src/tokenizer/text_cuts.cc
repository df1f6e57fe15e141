#include "tokenizer/text_cuts.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace chimera {
namespace {

/// What a pre-tokenizer does with a blank before a letter.
enum class WordsAtBlanks {
  Begin,   // a word begins with it
  Drop,    // it parts two words and belongs to none
  Ignore,  // it stands inside a word
  Unclear
};

WordsAtBlanks words_at_blanks(const PreTokenizer& pre_tokenizer) {
  using enum WordsAtBlanks;
  bool has_signs = false;  // in place of blanks
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

/// Whether white space stays where and as it is. No normal form changes or crosses a blank.
bool keeps_white_space(const Normalizer& normalizer) {
  return holds_of_steps(normalizer, [](const NormalizerStep& step) {
    if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
      return !replace->to.empty() && !has_white_space(replace->to) && !has_white_space(replace->from);
    }
    return !std::holds_alternative<BertStep>(step);
  });
}

/// BERT's normalizer may leave several blanks in the place of one, but never none.
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

}  // namespace

CutRule cut_rule(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer) {
  switch (words_at_blanks(pre_tokenizer)) {
    case WordsAtBlanks::Begin: return keeps_white_space(normalizer) ? CutRule::Always : CutRule::Never;
    case WordsAtBlanks::Drop:
      return keeps_white_space(normalizer) || is_bert(normalizer) ? CutRule::Always : CutRule::Never;
    case WordsAtBlanks::Ignore: return changes_blanks_alone(normalizer) ? CutRule::ModelDecides : CutRule::Never;
    case WordsAtBlanks::Unclear: break;
  }
  return CutRule::Never;
}

}  // namespace chimera

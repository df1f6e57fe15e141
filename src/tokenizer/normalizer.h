#pragma once

// The first part of a tokenizer (pipeline_tokenizer.h): it changes the characters of a text, for example to a Unicode
// normal form or to lower case, before the text is divided into words. A Normalizer is a list of steps, as in the field
// `normalizer` of a tokenizer.json.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace chimera {

struct ComposeStep {};    ///< converts to Unicode normal form NFC
struct DecomposeStep {};  ///< converts to Unicode normal form NFD
struct PrependStep {      ///< puts `prefix` before the text, unless the text is empty
  std::string prefix;
};
struct ReplaceStep {  ///< replaces each `from` by `to`
  std::string from;   ///< not empty
  std::string to;
};
/// The steps of BERT's tokenizer, in this order.
struct BertStep {
  bool clean_text = true;            ///< removes control characters; white space becomes blanks
  bool handle_chinese_chars = true;  ///< puts blanks around Chinese characters
  bool strip_accents = true;         ///< converts to NFD and removes accents
  bool lowercase = true;
};
using NormalizerStep = std::variant<ComposeStep, DecomposeStep, PrependStep, ReplaceStep, BertStep>;

/// Steps in their order.
using Normalizer = std::vector<NormalizerStep>;

/// Applies the steps to `text`. The result refers to `text` if nothing changed, else to `buffer`. `continues`: the text
/// is the continuation of a longer text, so PrependStep does nothing.
[[nodiscard]] std::string_view normalize(const Normalizer& normalizer, std::string_view text, std::string& buffer,
                                         bool continues = false);

}  // namespace chimera

#pragma once

// The first step of a pipeline: changes the characters of a text, such as to a Unicode normal form or to lower case,
// before it is cut into words.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace chimera {

struct ComposeStep {};    ///< NFC
struct DecomposeStep {};  ///< NFD
struct PrependStep {      ///< only if the text is not empty
  std::string prefix;
};
struct ReplaceStep {
  std::string from;  ///< not empty
  std::string to;
};
/// BERT's steps, in this order.
struct BertStep {
  bool clean_text = true;            ///< removes control characters; white space becomes blanks
  bool handle_chinese_chars = true;  ///< puts blanks around them
  bool strip_accents = true;         ///< NFD without marks
  bool lowercase = true;
};
using NormalizerStep = std::variant<ComposeStep, DecomposeStep, PrependStep, ReplaceStep, BertStep>;

/// Steps in their order.
using Normalizer = std::vector<NormalizerStep>;

/// Returns the text, in `buffer` if changed. With `continues`, nothing is prepended.
[[nodiscard]] std::string_view normalize(const Normalizer& normalizer, std::string_view text, std::string& buffer,
                                         bool continues = false);

}  // namespace chimera

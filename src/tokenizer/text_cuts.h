#pragma once
// Whether the parts of a pipeline let a text be encoded in two parts.

#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace chimera {

/// Whether a text may be cut before a single blank between a character that is no white space and a letter: whether
/// both parts, the second of which goes on instead of beginning, then have the tokens of the whole.
enum class CutRule {
  Never,        ///< perhaps not: what stands on one side may change tokens of the other
  Always,       ///< a word begins there
  ModelDecides  ///< it is inside a word, as it stands in the text but for signs in place of blanks
};

[[nodiscard]] CutRule cut_rule(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer);

}  // namespace chimera

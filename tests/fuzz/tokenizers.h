#pragma once
// What must hold of a tokenizer, whatever file it was read from.

#include <string_view>

#include "tokenizer/tokenizer.h"

namespace chimera::testing {

/// Texts, `file` among them, encode to ids of the vocabulary, in one part or two, and ids decode to valid UTF-8. Throws
/// std::logic_error where they do not.
void exercise_tokenizer(const Tokenizer& tokenizer, std::string_view file);

}  // namespace chimera::testing

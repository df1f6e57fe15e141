#pragma once

#include <string_view>

#include "tokenizer/tokenizer.h"

namespace chimera::testing {

/// Checks that texts, `file` among them, encode to ids of the vocabulary, in one piece or two, and that ids decode to
/// valid UTF-8. Throws std::logic_error otherwise.
void exercise_tokenizer(const Tokenizer& tokenizer, std::string_view file);

}  // namespace chimera::testing

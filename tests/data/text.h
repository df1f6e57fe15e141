#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/token_stream.h"

namespace chimera {

/// The bytes of `text` as tokens.
inline TokenView view_of(std::string_view text) {
  return text_in_memory({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, "text");
}

/// `count` numbered sentences, all different: "0 came. 1 came. ...".
inline std::string sentences(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += std::to_string(i) + " came. ";
  return text;
}

}  // namespace chimera

#pragma once
// What becomes of a document that ends inside a sample.

#include <cstdint>

#include "core/names.h"

namespace chimera {

enum class Documents : std::uint8_t {
  Pack,   ///< the next one follows, as if they were one text
  Split,  ///< the same tokens, but a token sees those of its own document alone
};
template <>
inline constexpr auto kNames<Documents> = std::to_array<Named<Documents>>({{Documents::Pack, "pack"},
                                                                           {Documents::Split, "split"}});

}  // namespace chimera

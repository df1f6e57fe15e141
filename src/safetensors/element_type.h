#pragma once

// Types of the elements of tensors in safetensors files, with their names in file headers. In a name such as F8_E4M3,
// the numbers are the bits of the whole element, of its exponent (E) and of its mantissa (M). FNUZ means a type without
// infinities and negative zero.

#include "core/choices.h"

namespace chimera {

/// All types of the format. Their order is by size, except Bool; bits_of() depends on it. Chimera computes with few of
/// them, and skips tensors of the others.
enum class ElementType : std::uint8_t {
  Bool,
  F4,
  F6E2M3,
  F6E3M2,
  U8,
  I8,
  F8E5M2,
  F8E4M3,
  F8E8M0,
  F8E4M3Fnuz,
  F8E5M2Fnuz,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64,
};
template <>
inline constexpr auto kNames<ElementType> = in_order<ElementType>("BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8",
                                                                  "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ",
                                                                  "F8_E5M2FNUZ", "I16", "U16", "F16", "BF16", "I32",
                                                                  "U32", "F32", "C64", "F64", "I64", "U64");

/// Returns the number of bits of an element. Elements of 4 and 6 bits are packed. A Bool has 8 bits.
[[nodiscard]] constexpr std::uint64_t bits_of(ElementType type) {
  if (type == ElementType::F4) return 4;
  if (type <= ElementType::F6E3M2 && type != ElementType::Bool) return 6;
  if (type <= ElementType::F8E5M2Fnuz) return 8;
  return type <= ElementType::BF16 ? 16 : type <= ElementType::F32 ? 32 : 64;
}

}  // namespace chimera

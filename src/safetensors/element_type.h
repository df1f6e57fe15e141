#pragma once

// Types of the elements of tensors in safetensors files, with their names in file headers. In a name such as F8_E4M3,
// the numbers are the bits of the whole element, of its exponent (E) and of its mantissa (M).

#include <cstdint>

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
inline constexpr auto kNames<ElementType> = std::to_array<Named<ElementType>>({
    {ElementType::Bool, "BOOL"},
    {ElementType::F4, "F4"},
    {ElementType::F6E2M3, "F6_E2M3"},
    {ElementType::F6E3M2, "F6_E3M2"},
    {ElementType::U8, "U8"},
    {ElementType::I8, "I8"},
    {ElementType::F8E5M2, "F8_E5M2"},
    {ElementType::F8E4M3, "F8_E4M3"},
    {ElementType::F8E8M0, "F8_E8M0"},
    {ElementType::F8E4M3Fnuz, "F8_E4M3FNUZ"},
    {ElementType::F8E5M2Fnuz, "F8_E5M2FNUZ"},
    {ElementType::I16, "I16"},
    {ElementType::U16, "U16"},
    {ElementType::F16, "F16"},
    {ElementType::BF16, "BF16"},
    {ElementType::I32, "I32"},
    {ElementType::U32, "U32"},
    {ElementType::F32, "F32"},
    {ElementType::C64, "C64"},
    {ElementType::F64, "F64"},
    {ElementType::I64, "I64"},
    {ElementType::U64, "U64"},
});

/// Returns the bits of an element. Elements of 4 and 6 bits are packed.
[[nodiscard]] constexpr std::uint64_t bits_of(ElementType type) {
  if (type == ElementType::F4) return 4;
  if (type <= ElementType::F6E3M2 && type != ElementType::Bool) return 6;
  if (type <= ElementType::F8E5M2Fnuz) return 8;
  return type <= ElementType::BF16 ? 16 : type <= ElementType::F32 ? 32 : 64;
}

}  // namespace chimera

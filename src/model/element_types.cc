#include "model/element_types.h"

#include <fmt/format.h>

#include "core/error.h"

namespace chimera {

ElementType element_type(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return ElementType::F64;
    case at::kFloat: return ElementType::F32;
    case at::kBFloat16: return ElementType::BF16;
    case at::kHalf: return ElementType::F16;
    case at::kLong: return ElementType::I64;
    case at::kInt: return ElementType::I32;
    case at::kByte: return ElementType::U8;
    case at::kBool: return ElementType::Bool;
    default: throw Error(fmt::format("safetensors files do not hold tensors of {}", c10::toString(type)));
  }
}

at::ScalarType floating_type(ElementType type) {
  switch (type) {
    case ElementType::F64: return at::kDouble;
    case ElementType::F32: return at::kFloat;
    case ElementType::BF16: return at::kBFloat16;
    case ElementType::F16: return at::kHalf;
    default: throw Error(to_text(type) + " is no type of floating-point numbers");
  }
}

}  // namespace chimera

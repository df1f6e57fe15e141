#pragma once

// Messages between stages of a user's model, which may exchange several tensors of different types, or none where a
// value is missing. A transport carries one floating-point tensor per message, so pack() joins the values into one, and
// unpack() restores them from the layout that both stages agreed on.

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <string>
#include <vector>

#include "model/layers.h"

namespace chimera {

struct TensorShape {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;  // Undefined: a missing value
  bool has_gradient = true;
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

/// The tensors that a stage sends, equal for all micro-batches. A single floating-point tensor with dimensions is its
/// own message (`is_plain`); others are packed into one.
using MessageLayout = std::vector<TensorShape>;

/// Returns why no message can carry the values; empty if one can.
[[nodiscard]] std::string find_fault(const TensorVector& values);

[[nodiscard]] MessageLayout layout_of(const TensorVector& values);
/// Returns whether pack() takes values of the layout `found`: only gradients may be missing.
[[nodiscard]] bool fits(const MessageLayout& found, const MessageLayout& layout);

[[nodiscard]] bool is_plain(const MessageLayout& layout);
[[nodiscard]] TensorShape message_shape(const MessageLayout& layout);
/// Returns the message. It has one dimension and a type that represents all floating-point tensors exactly; integers
/// take a number per byte.
[[nodiscard]] at::Tensor pack(const TensorVector& values, const MessageLayout& layout);
/// Returns the values of pack(). Gradients flow to tensors with `has_gradient`.
[[nodiscard]] TensorVector unpack(const at::Tensor& message, const MessageLayout& layout);

/// Returns for example `[2, 3] of Float, [2] of Long without a gradient, nothing`.
[[nodiscard]] std::string describe(const MessageLayout& layout);
[[nodiscard]] std::string describe(const TensorVector& values);

}  // namespace chimera

#pragma once

// Messages between stages of a user's model. A stage may send several tensors of different types to the next one, and
// some of them may be undefined (`None` in Python). A transport carries one floating-point tensor per message, so
// pack() joins the tensors into one, and unpack() restores them. Both stages use the same MessageLayout, which the
// sender's first micro-batch determines.

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <string>
#include <vector>

#include "model/layers.h"

namespace chimera {

/// Description of one tensor of a message.
struct TensorShape {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;  // at::ScalarType::Undefined: an undefined tensor
  bool has_gradient = true;           // whether backward sends its gradient back
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

/// The tensors that a stage sends, equal for all micro-batches.
using MessageLayout = std::vector<TensorShape>;

/// Returns why a message cannot carry the values, for example because a tensor is sparse or complex; empty if it can.
[[nodiscard]] std::string find_fault(const TensorVector& values);

/// Returns the layout of a message with these values.
[[nodiscard]] MessageLayout message_layout_of(const TensorVector& values);
/// Returns whether pack() accepts values of the layout `found` for a message of `layout`: sizes and types must be
/// equal, but a tensor in `found` need not have a gradient if `layout` has one.
[[nodiscard]] bool fits(const MessageLayout& found, const MessageLayout& layout);

/// Returns whether the layout is a single floating-point tensor with at least one dimension, which is sent as it is.
/// Other layouts are packed.
[[nodiscard]] bool is_plain(const MessageLayout& layout);
/// Returns size and type of the tensor that the transport carries.
[[nodiscard]] TensorShape message_shape(const MessageLayout& layout);
/// Returns the message for the values. If they are packed, it has one dimension, and a type that represents all
/// floating-point tensors exactly; an integer takes one element per byte.
[[nodiscard]] at::Tensor pack(const TensorVector& values, const MessageLayout& layout);
/// Returns the values that pack() put into the message. In backward, gradients flow from tensors with `has_gradient` to
/// the message.
[[nodiscard]] TensorVector unpack(const at::Tensor& message, const MessageLayout& layout);

/// Return for example `[2, 3] of Float, [2] of Long without a gradient, nothing`; `nothing` is an undefined tensor.
[[nodiscard]] std::string describe(const MessageLayout& layout);
[[nodiscard]] std::string describe(const TensorVector& values);

}  // namespace chimera

#include "model/message_layout.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>

// A packed message is a flat tensor: the tensors one after the other, each followed by zeros up to the next multiple of
// kMessageAlignment elements. Its type represents all floating-point tensors among them exactly. Bool is sent by value,
// and other types as bytes, one per element, because even bfloat16 represents 0 to 255 exactly.

namespace chimera {
namespace {

constexpr std::int64_t kMessageAlignment =
    16;  // elements, so that each tensor begins at a multiple of 32 bytes or more

/// Floating-point types of 8 bits are sent as bytes, like integers.
bool is_wide(at::ScalarType type) { return at::isFloatingType(type) && at::elementSize(type) > 1; }

bool is_sent_by_value(at::ScalarType type) { return is_wide(type) || type == at::kBool; }

bool is_missing(const TensorShape& shape) { return shape.dtype == at::ScalarType::Undefined; }

std::int64_t message_elements(const TensorShape& shape) {
  if (is_missing(shape)) return 0;
  const std::int64_t elements = c10::multiply_integers(shape.sizes);
  return is_sent_by_value(shape.dtype) ? elements : elements * static_cast<std::int64_t>(at::elementSize(shape.dtype));
}

std::int64_t padding_behind(std::int64_t elements) {
  return (kMessageAlignment - elements % kMessageAlignment) % kMessageAlignment;
}

at::ScalarType message_type(const MessageLayout& layout) {
  at::ScalarType type = at::ScalarType::Undefined;
  for (const TensorShape& shape : layout) {
    if (!is_wide(shape.dtype)) continue;
    // Promotion, not the maximum of sizes: bfloat16 and float16 together need float32.
    type = type == at::ScalarType::Undefined ? shape.dtype : at::promoteTypes(type, shape.dtype);
  }
  return type == at::ScalarType::Undefined ? at::kFloat : type;
}

/// Integers travel as one number per byte, because a floating-point message does not hold large integers exactly.
at::Tensor restored(const at::Tensor& flat, const TensorShape& shape) {
  if (is_missing(shape)) return {};
  const at::Tensor source = shape.has_gradient ? flat : flat.detach();
  if (is_sent_by_value(shape.dtype)) return source.view(shape.sizes).to(shape.dtype);
  // The inverse of pack(): bytes of one element lie side by side again, and are reinterpreted.
  return source.to(at::kByte).view(shape.dtype).view(shape.sizes);
}

std::string describe_shapes(const MessageLayout& layout, bool with_gradients) {
  std::vector<std::string> shapes;
  for (const TensorShape& shape : layout) {
    const bool has_note = with_gradients && !shape.has_gradient;
    shapes.push_back(is_missing(shape)
                         ? "nothing"
                         : fmt::format("[{}] of {}{}", fmt::join(shape.sizes, ", "), c10::toString(shape.dtype),
                                       has_note ? " without a gradient" : ""));
  }
  return fmt::format("{}", fmt::join(shapes, ", "));
}

}  // namespace

std::string find_fault(const TensorVector& values) {
  if (std::ranges::none_of(values, &at::Tensor::defined)) return "no tensor; a message needs at least one";
  for (const at::Tensor& value : values) {
    if (!value.defined()) continue;
    const at::ScalarType type = value.scalar_type();
    const bool is_dense = value.layout() == at::kStrided && !value.is_quantized();
    // A gradient comes back in the type of the message, so types that are sent as bytes cannot have one.
    if (is_dense && !at::isComplexType(type) && (!value.requires_grad() || is_wide(type))) continue;
    return fmt::format("{}; messages carry dense real tensors, with gradients for types of at least 16 bits",
                       describe(TensorVector{value}));
  }
  return "";
}

MessageLayout message_layout_of(const TensorVector& values) {
  MessageLayout layout;
  for (const at::Tensor& value : values) {
    TensorShape& shape = layout.emplace_back();
    shape.has_gradient = value.defined() && value.requires_grad();
    shape.dtype = value.scalar_type();
    if (value.defined()) shape.sizes = value.sizes().vec();
  }
  // A plain message is the tensor itself, whose gradient always comes back; it is zero if nothing depends on it.
  if (is_plain(layout)) layout.front().has_gradient = true;
  return layout;
}

bool fits(const MessageLayout& found, const MessageLayout& layout) {
  return std::ranges::equal(found, layout, [](const TensorShape& own, const TensorShape& expected) {
    return own.sizes == expected.sizes && own.dtype == expected.dtype && (expected.has_gradient || !own.has_gradient);
  });
}

bool is_plain(const MessageLayout& layout) {
  return layout.size() == 1 && at::isFloatingType(layout.front().dtype) && !layout.front().sizes.empty();
}

TensorShape message_shape(const MessageLayout& layout) {
  if (is_plain(layout)) return layout.front();
  std::int64_t elements = 0;
  for (const TensorShape& shape : layout) {
    const std::int64_t own = message_elements(shape);
    elements += own + padding_behind(own);
  }
  return {{elements}, message_type(layout)};
}

at::Tensor pack(const TensorVector& values, const MessageLayout& layout) {
  if (is_plain(layout)) return values.front();
  const at::ScalarType type = message_type(layout);
  TensorVector parts;
  for (const at::Tensor& value : values) {
    if (!value.defined()) continue;
    at::Tensor flat = value.reshape({-1});
    if (!is_sent_by_value(value.scalar_type())) flat = flat.contiguous().view(at::kByte);
    parts.push_back(flat.to(type));
    parts.push_back(at::zeros({padding_behind(flat.numel())}, flat.options().dtype(type)));
  }
  return at::cat(parts);
}

TensorVector unpack(const at::Tensor& message, const MessageLayout& layout) {
  if (is_plain(layout)) return {message};
  std::vector<std::int64_t> sizes;
  for (const TensorShape& shape : layout) {
    sizes.push_back(message_elements(shape));
    // Parts 2i are tensors, parts 2i + 1 the padding behind them.
    sizes.push_back(padding_behind(sizes.back()));
  }
  const TensorVector parts = message.split_with_sizes(sizes);
  TensorVector values;
  for (std::size_t i = 0; i < layout.size(); ++i) values.push_back(restored(parts[2 * i], layout[i]));
  return values;
}

std::string describe(const MessageLayout& layout) { return describe_shapes(layout, /*with_gradients=*/true); }

std::string describe(const TensorVector& values) {
  return describe_shapes(message_layout_of(values), /*with_gradients=*/false);
}

}  // namespace chimera

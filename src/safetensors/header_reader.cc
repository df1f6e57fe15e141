#include "safetensors/header_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

#include "core/error.h"
#include "core/printable.h"

namespace chimera {
namespace {

constexpr const char* kMetadataName = "__metadata__";

}  // namespace

std::string shown_name(std::string_view name) {
  constexpr std::size_t kLongest = 120;
  return fmt::format("'{}'", printable(name, kLongest));
}

std::string json_fault(const nlohmann::detail::exception& error) {
  std::string what = error.what();  // "[...] parse error at line 1, column 2: reason; last read: 'text'"
  if (const auto colon = what.find(": "); colon != std::string::npos) what.erase(0, colon + 2);
  if (const auto token = what.find("; last read"); token != std::string::npos) what.erase(token);
  constexpr std::size_t kLongest = 200;
  return "no JSON: " + what.substr(0, kLongest);
}

void HeaderReader::fail(const std::string& what) const {
  const bool in_tensor = where_ == Where::Tensor || where_ == Where::Shape || where_ == Where::Offsets;
  throw ConfigError(fmt::format("{}: {}{}", path_, in_tensor ? "tensor " + shown_name(name_) + ": " : "", what));
}

void HeaderReader::unexpected(const char* found) const {
  const char* expected = "";
  switch (where_) {
    case Where::Start: fail(fmt::format("its header is {}; expected an object", found));
    case Where::Tensors: expected = "an object"; break;
    case Where::Metadata: expected = "a text"; break;
    case Where::Tensor: expected = field_ == Field::Type ? "a text" : "an array"; break;
    case Where::Shape:
    case Where::Offsets: expected = "a whole number from 0 to 2^63"; break;
  }
  const char* field = "";
  if (where_ == Where::Tensor || where_ == Where::Shape || where_ == Where::Offsets) {
    field = field_ == Field::Type ? "dtype: " : field_ == Field::Shape ? "shape: " : "data_offsets: ";
  }
  const std::string owner =
      where_ == Where::Tensors || where_ == Where::Metadata ? fmt::format("header, {}: ", shown_name(name_)) : "";
  fail(fmt::format("{}{}expected {}, found {}", owner, field, expected, found));
}

bool HeaderReader::number_unsigned(std::uint64_t value) {
  if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) unexpected("a number above 2^63");
  if (where_ == Where::Shape) {
    if (shape_.size() == kMostDimensions) fail(fmt::format("shape: more than {} dimensions", kMostDimensions));
    shape_.push_back(value);
  } else if (where_ == Where::Offsets) {
    if (offsets_.size() == 2) fail("data_offsets: more than two numbers");
    offsets_.push_back(value);
  } else {
    unexpected("a number");
  }
  return true;
}

bool HeaderReader::string(std::string& value) {
  if (where_ == Where::Metadata) {
    if (table_.metadata_.size() == kMostMetadata) fail(fmt::format("metadata: more than {} texts", kMostMetadata));
    if (!table_.metadata_.emplace(name_, std::move(value)).second) {
      fail(fmt::format("metadata: {} is given twice", shown_name(name_)));
    }
    return true;
  }
  if (where_ != Where::Tensor || field_ != Field::Type) unexpected("a text");
  const auto type = find_named<ElementType>(value);
  if (!type) {
    fail(fmt::format("dtype {} is not a type of safetensors; expected one of {}", shown_name(value),
                     fmt::join(names_of<ElementType>(), ", ")));
  }
  type_ = *type;
  return true;
}

bool HeaderReader::start_object(std::size_t) {
  if (where_ == Where::Start) {
    where_ = Where::Tensors;
  } else if (where_ == Where::Tensors) {
    const bool metadata = name_ == kMetadataName;
    if (metadata && metadata_seen_) fail("header: '__metadata__' is given twice");
    metadata_seen_ = metadata_seen_ || metadata;
    where_ = metadata ? Where::Metadata : Where::Tensor;
    fields_seen_ = 0;
  } else {
    unexpected("an object");
  }
  return true;
}

bool HeaderReader::key(std::string& name) {
  if (where_ != Where::Tensor) {
    name_ = std::move(name);
    return true;
  }
  if (name == "dtype") {
    begin_field(Field::Type);
  } else if (name == "shape") {
    begin_field(Field::Shape);
  } else if (name == "data_offsets") {
    begin_field(Field::Offsets);
  } else {
    fail(fmt::format("unknown field {}; known are dtype, shape, data_offsets", shown_name(name)));
  }
  return true;
}

void HeaderReader::begin_field(Field field) {
  const auto bit = static_cast<std::uint8_t>(1U << static_cast<unsigned>(field));
  if ((fields_seen_ & bit) != 0) fail("a field is given twice");
  fields_seen_ |= bit;
  field_ = field;
}

bool HeaderReader::end_object() {
  if (where_ == Where::Tensor) {
    add_tensor();
    where_ = Where::Tensors;
  } else if (where_ == Where::Metadata) {
    where_ = Where::Tensors;
  }
  return true;
}

bool HeaderReader::start_array(std::size_t) {
  if (where_ == Where::Tensor && field_ == Field::Shape) {
    where_ = Where::Shape;
    shape_.clear();
  } else if (where_ == Where::Tensor && field_ == Field::Offsets) {
    where_ = Where::Offsets;
    offsets_.clear();
  } else {
    unexpected("an array");
  }
  return true;
}

bool HeaderReader::end_array() {
  if (where_ == Where::Offsets && offsets_.size() != 2) fail("data_offsets: must be two numbers");
  where_ = Where::Tensor;
  return true;
}

bool HeaderReader::parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
  throw ConfigError(fmt::format("{}: byte {} of its header: {}", path_, position, json_fault(error)));
}

std::uint64_t HeaderReader::bytes_of_shape() const {
  std::uint64_t bits = bits_of(type_);
  std::uint64_t elements = 1;
  for (const std::uint64_t size : shape_) {
    if (__builtin_mul_overflow(elements, size, &elements)) fail("shape: the number of its elements overflows");
  }
  if (__builtin_mul_overflow(elements, bits, &bits)) fail("shape: the number of its bytes overflows");
  if (bits % 8 != 0) fail(fmt::format("{} elements of {} make no whole bytes", elements, to_text(type_)));
  return bits / 8;
}

void HeaderReader::add_tensor() {
  constexpr std::uint8_t kAll = 0b1110;
  if (fields_seen_ != kAll) fail("must have the fields dtype, shape and data_offsets");
  const std::uint64_t begin = offsets_[0];
  const std::uint64_t end = offsets_[1];
  if (begin > end) fail(fmt::format("data_offsets: end {} is before begin {}", end, begin));
  if (const std::uint64_t bytes = bytes_of_shape(); bytes != end - begin) {
    fail(fmt::format("{} [{}] takes {} bytes, but data_offsets give it {}", to_text(type_), fmt::join(shape_, ", "),
                     bytes, end - begin));
  }
  const std::string_view shape = table_.texts_.keep(fmt::format("{}", fmt::join(shape_, ",")));
  table_.rows_.push_back({.name = table_.texts_.keep(name_),
                          .shape = shape.data(),
                          .shape_length = static_cast<std::uint16_t>(shape.size()),
                          .type = type_,
                          .begin = begin,
                          .end = end});
}

}  // namespace chimera

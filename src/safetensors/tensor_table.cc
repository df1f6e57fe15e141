#include "safetensors/tensor_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "core/content.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/reject.h"

// A header may have 100 MB, and a tree of JSON values many times as much. The events of nlohmann's parser therefore
// fill the table at once.

namespace chimera {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr const char* kMetadataName = "__metadata__";

/// Throws ConfigError if the first bytes are those of another format.
void require_tensors(const std::string& path, std::uint64_t file_bytes, const ReadBytes& read) {
  std::string head(std::min<std::uint64_t>(file_bytes, kContentHead), '\0');
  read(0, std::as_writable_bytes(std::span(head)));
  require_downloaded_content(path, head);
  const std::string_view start = std::string_view(head).substr(0, kLengthBytes);
  if (std::ranges::all_of(start, [](unsigned char c) { return (c >= ' ' && c < 0x7F) || c == '\n'; })) {
    reject("{}: begins with the text {}; expected a safetensors file", path, shown_name(head));
  }
}

std::uint64_t header_bytes(const std::string& path, std::uint64_t file_bytes, const ReadBytes& read) {
  if (file_bytes < kLengthBytes) reject("{}: {} bytes are too few for a safetensors file", path, file_bytes);
  require_tensors(path, file_bytes, read);
  std::array<std::byte, kLengthBytes> little_endian{};
  read(0, little_endian);
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8U | std::to_integer<std::uint64_t>(little_endian[i]);
  if (length > kMaxHeaderBytes) {
    reject("{}: gives its header {} bytes; safetensors allows at most {}", path, length, kMaxHeaderBytes);
  }
  if (length > file_bytes - kLengthBytes) {
    reject("{}: is cut off: its header has {} bytes, the whole file only {}", path, length, file_bytes);
  }
  return length;
}

std::string json_fault(const nlohmann::detail::exception& error) {
  std::string what = error.what();  // "[...] parse error at line 1, column 2: reason; last read: 'text'"
  if (const auto colon = what.find(": "); colon != std::string::npos) what.erase(0, colon + 2);
  if (const auto token = what.find("; last read"); token != std::string::npos) what.erase(token);
  constexpr std::size_t kLongest = 200;
  return "no JSON: " + what.substr(0, kLongest);
}

}  // namespace

std::string shown_name(std::string_view name) {
  constexpr std::size_t kLongest = 120;
  return fmt::format("'{}'", printable(name, kLongest));
}

/// Event handler of nlohmann's parser that adds a header to a table. Throws ConfigError.
class TensorTable::HeaderReader {
 public:
  HeaderReader(std::string path, TensorTable& table) : path_(std::move(path)), table_(table) {}

  bool null() { unexpected("null"); }
  bool boolean(bool /*value*/) { unexpected("a boolean"); }
  bool number_integer(std::int64_t /*value*/) { unexpected("a negative number"); }
  bool number_unsigned(std::uint64_t value) {
    if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) unexpected("a number above 2^63");
    if (where_ == Where::Shape) {
      if (shape_.size() == kMaxDimensions) fail(fmt::format("shape: more than {} dimensions", kMaxDimensions));
      shape_.push_back(value);
    } else if (where_ == Where::Offsets) {
      if (offsets_.size() == 2) fail("data_offsets: more than two numbers");
      offsets_.push_back(value);
    } else {
      unexpected("a number");
    }
    return true;
  }
  bool number_float(double /*value*/, const std::string& /*text*/) { unexpected("a fraction or a number above 2^64"); }
  bool string(std::string& value) {
    if (where_ == Where::Metadata) {
      if (table_.metadata_.size() == kMaxMetadata) fail(fmt::format("metadata: more than {} texts", kMaxMetadata));
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
  bool binary(nlohmann::json::binary_t& /*value*/) { unexpected("bytes"); }
  bool start_object(std::size_t) {
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
  bool key(std::string& name) {
    if (where_ != Where::Tensor) {
      name_ = std::move(name);
      return true;
    }
    const auto known = std::ranges::find(kFields, name);
    if (known == kFields.end()) {
      fail(fmt::format("unknown field {}; known are {}", shown_name(name), fmt::join(kFields, ", ")));
    }
    field_ = static_cast<Field>(known - kFields.begin());
    const auto bit = static_cast<std::uint8_t>(1U << static_cast<unsigned>(field_));
    if ((fields_seen_ & bit) != 0) fail("a field is given twice");
    fields_seen_ |= bit;
    return true;
  }
  bool end_object() {
    if (where_ == Where::Tensor) {
      add_tensor();
      where_ = Where::Tensors;
    } else if (where_ == Where::Metadata) {
      where_ = Where::Tensors;
    }
    return true;
  }
  bool start_array(std::size_t) {
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
  bool end_array() {
    if (where_ == Where::Offsets && offsets_.size() != 2) fail("data_offsets: must be two numbers");
    where_ = Where::Tensor;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    reject("{}: byte {} of its header: {}", path_, position, json_fault(error));
  }

 private:
  enum class Where : std::uint8_t { Start, Tensors, Metadata, Tensor, Shape, Offsets };
  enum class Field : std::uint8_t { Type, Shape, Offsets };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};  // [Field]

  [[noreturn]] void fail(const std::string& what) const {
    const bool in_tensor = where_ == Where::Tensor || where_ == Where::Shape || where_ == Where::Offsets;
    reject("{}: {}{}", path_, in_tensor ? "tensor " + shown_name(name_) + ": " : "", what);
  }
  [[noreturn]] void unexpected(const char* found) const {
    const char* expected = "";
    switch (where_) {
      case Where::Start: fail(fmt::format("its header is {}; expected an object", found));
      case Where::Tensors: expected = "an object"; break;
      case Where::Metadata: expected = "a text"; break;
      case Where::Tensor: expected = field_ == Field::Type ? "a text" : "an array"; break;
      case Where::Shape:
      case Where::Offsets: expected = "a whole number from 0 to 2^63"; break;
    }
    const bool in_tensor = where_ == Where::Tensor || where_ == Where::Shape || where_ == Where::Offsets;
    const std::string field = in_tensor ? fmt::format("{}: ", kFields[static_cast<std::size_t>(field_)]) : "";
    const std::string owner =
        where_ == Where::Tensors || where_ == Where::Metadata ? fmt::format("header, {}: ", shown_name(name_)) : "";
    fail(fmt::format("{}{}expected {}, found {}", owner, field, expected, found));
  }
  void add_tensor() {
    constexpr std::uint8_t kAll = 0b111;
    if (fields_seen_ != kAll) fail("must have the fields dtype, shape and data_offsets");
    const std::uint64_t begin = offsets_[0];
    const std::uint64_t end = offsets_[1];
    if (begin > end) fail(fmt::format("data_offsets: end {} is before begin {}", end, begin));
    if (const std::uint64_t bytes = bytes_of_shape(); bytes != end - begin) {
      fail(fmt::format("{} [{}] takes {} bytes, but data_offsets give it {}", to_text(type_), fmt::join(shape_, ", "),
                       bytes, end - begin));
    }
    // Shapes are kept as text in a pool: a malicious header may have millions of tensors with many dimensions.
    const std::string_view shape = table_.texts_.keep(fmt::format("{}", fmt::join(shape_, ",")));
    table_.rows_.push_back({.name = table_.texts_.keep(name_),
                            .shape = shape.data(),
                            .shape_length = static_cast<std::uint16_t>(shape.size()),
                            .type = type_,
                            .begin = begin,
                            .end = end});
  }
  [[nodiscard]] std::uint64_t bytes_of_shape() const {
    std::uint64_t bits = bits_of(type_);
    std::uint64_t elements = 1;
    for (const std::uint64_t size : shape_) {
      if (__builtin_mul_overflow(elements, size, &elements)) fail("shape: the number of its elements overflows");
    }
    if (__builtin_mul_overflow(elements, bits, &bits)) fail("shape: the number of its bytes overflows");
    if (bits % 8 != 0) fail(fmt::format("{} elements of {} make no whole bytes", elements, to_text(type_)));
    return bits / 8;
  }

  std::string path_;
  TensorTable& table_;
  Where where_ = Where::Start;
  Field field_ = Field::Type;
  std::uint8_t fields_seen_ = 0;
  bool metadata_seen_ = false;
  std::string name_;  // of the current tensor or metadata text
  ElementType type_ = ElementType::F32;
  std::vector<std::uint64_t> shape_;
  std::vector<std::uint64_t> offsets_;
};

TensorTable::TensorTable(const std::string& path, std::uint64_t file_bytes, const ReadBytes& read) {
  const std::uint64_t length = header_bytes(path, file_bytes, read);
  std::string header(length, '\0');
  read(kLengthBytes, std::as_writable_bytes(std::span(header)));
  if (!header.starts_with('{')) reject("{}: its header does not begin with '{{'; it is not a safetensors file", path);
  // The parser takes NUL for the end of the text.
  if (header.find('\0') != header.npos) reject("{}: has a NUL character where JSON is expected", path);
  HeaderReader reader(path, *this);
  (void)nlohmann::json::sax_parse(header, &reader);
  data_begin_ = kLengthBytes + length;
  require_cover(path, file_bytes - data_begin_);
  require_distinct(path);
}

void TensorTable::require_cover(const std::string& path, std::uint64_t data_bytes) {
  // In the order of the data, each tensor must begin where the one before it ends.
  std::sort(rows_.begin(), rows_.end(),
            [](const Row& a, const Row& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  std::uint64_t end = 0;
  for (const Row& row : rows_) {
    if (row.begin != end) {
      reject("{}: tensor {} begins at byte {} of the data: {}, because the tensor before it ends at {}", path,
             shown_name(row.name), row.begin, row.begin < end ? "an overlap" : "a hole", end);
    }
    end = row.end;
  }
  if (end == data_bytes) return;
  throw ConfigError(
      end > data_bytes
          ? fmt::format("{}: is cut off: its tensors take {} bytes, it has {}", path, end, data_bytes)
          : fmt::format("{}: has {} bytes after its last tensor; they belong to no tensor", path, data_bytes - end));
}

void TensorTable::require_distinct(const std::string& path) {
  std::ranges::sort(rows_, {}, &Row::name);
  const auto twice = std::ranges::adjacent_find(rows_, {}, &Row::name);
  if (twice == rows_.end()) return;
  reject("{}: tensor {} is in its header twice", path, shown_name(twice->name));
}

TensorEntry TensorTable::operator[](std::size_t i) const {
  const Row& row = rows_[i];
  TensorEntry entry{.name = std::string(row.name),
                    .type = row.type,
                    .shape = {},
                    .begin = data_begin_ + row.begin,
                    .bytes = row.end - row.begin};
  const char* const end = row.shape + row.shape_length;
  for (const char* next = row.shape; next < end; ++next) {  // skips the comma
    std::int64_t size = 0;
    next = std::from_chars(next, end, size).ptr;
    entry.shape.push_back(size);
  }
  return entry;
}

std::optional<TensorEntry> TensorTable::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(rows_, name, {}, &Row::name);
  if (found == rows_.end() || found->name != name) return std::nullopt;
  return (*this)[static_cast<std::size_t>(found - rows_.begin())];
}

std::vector<std::string> TensorTable::names() const {
  std::vector<std::string> names;
  for (const Row& row : rows_) names.emplace_back(row.name);
  return names;
}

}  // namespace chimera

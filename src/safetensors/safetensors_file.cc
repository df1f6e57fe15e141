#include "safetensors/safetensors_file.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "core/content.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/mapped.h"
#include "core/printable.h"
#include "core/reject.h"

// The header is parsed as a tree of JSON values, which for a moment takes many times its size; kMaxHeaderBytes limits
// that.

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
  if (std::ranges::all_of(start, [](unsigned char c) { return (c >= ' ' && c < 0x7F) || c == '\n'; }))
    reject("{}: begins with the text {}; expected a safetensors file", path, shown_name(head));
}

std::uint64_t header_bytes(const std::string& path, std::uint64_t file_bytes, const ReadBytes& read) {
  if (file_bytes < kLengthBytes) reject("{}: {} bytes are too few for a safetensors file", path, file_bytes);
  // Before the length is believed: the first bytes of a text or an archive would be a length, too.
  require_tensors(path, file_bytes, read);
  std::array<std::byte, kLengthBytes> little_endian{};
  read(0, little_endian);
  std::uint64_t length = 0;
  // From the last byte to the first, whatever the byte order of this machine.
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8U | std::to_integer<std::uint64_t>(little_endian[i]);
  if (length > kMaxHeaderBytes)
    reject("{}: gives its header {} bytes; safetensors allows at most {}", path, length, kMaxHeaderBytes);
  if (length > file_bytes - kLengthBytes)
    reject("{}: is cut off: its header has {} bytes, the whole file only {}", path, length, file_bytes);
  return length;
}

/// Returns the numbers in a list, such as a shape. The list is not made a list of JsonValues, because a malicious
/// header may have millions of numbers.
std::vector<std::int64_t> whole_numbers(const JsonValue& list, std::size_t most) {
  if (!list.json().is_array()) list.fail(fmt::format("expected an array, found {}", list.json().type_name()));
  if (list.json().size() > most) list.fail(fmt::format("more than {} numbers", most));
  std::vector<std::int64_t> numbers;
  for (const nlohmann::json& number : list.json()) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > kMost)
      list.fail(fmt::format("expected whole numbers from 0 to 2^63 - 1, found {}", shown_name(json_text(number))));
    numbers.push_back(number);
  }
  return numbers;
}

std::uint64_t bytes_of_shape(const JsonValue& tensor, ElementType type, const std::vector<std::int64_t>& shape) {
  std::uint64_t bits = bits_of(type);
  std::uint64_t elements = 1;
  for (const std::int64_t size : shape) {
    // A product that wraps around could equal the size that data_offsets give.
    if (__builtin_mul_overflow(elements, size, &elements)) tensor.fail("the number of its elements overflows");
  }
  if (__builtin_mul_overflow(elements, bits, &bits)) tensor.fail("the number of its bytes overflows");
  if (bits % 8 != 0) tensor.fail(fmt::format("{} elements of {} make no whole bytes", elements, to_text(type)));
  return bits / 8;
}

/// Returns the tensor that the header describes. Its position counts from the end of the header.
TensorEntry entry_of(const JsonValue& tensor, const std::string& name) {
  tensor.expect_object({"dtype", "shape", "data_offsets"});
  const std::string word = tensor.text("dtype");
  const auto type = find_named<ElementType>(word);
  if (!type) {
    tensor.fail(fmt::format("dtype {} is not a type of safetensors; expected one of {}", shown_name(word),
                            fmt::join(names_of<ElementType>(), ", ")));
  }
  const auto shape = whole_numbers(tensor.field("shape"), kMaxDimensions);
  const auto offsets = whole_numbers(tensor.field("data_offsets"), 2);
  if (offsets.size() != 2) tensor.fail("data_offsets must be two numbers");
  const auto [begin, end] = std::pair(static_cast<std::uint64_t>(offsets[0]), static_cast<std::uint64_t>(offsets[1]));
  if (begin > end) tensor.fail(fmt::format("data_offsets: end {} is before begin {}", end, begin));
  if (const std::uint64_t bytes = bytes_of_shape(tensor, *type, shape); bytes != end - begin) {
    tensor.fail(fmt::format("{} [{}] takes {} bytes, but data_offsets give it {}", to_text(*type),
                            fmt::join(shape, ", "), bytes, end - begin));
  }
  return {.name = name, .type = *type, .shape = shape, .begin = begin, .bytes = end - begin};
}

/// Throws ConfigError unless the tensors fill `data_bytes` bytes without overlap or hole.
void require_cover(const std::string& path, const std::vector<TensorEntry>& tensors, std::uint64_t data_bytes) {
  // In the order of the data, each tensor must begin where the one before it ends. An empty tensor begins where the
  // next one does, and comes first.
  auto by_place = mapped(tensors, [](const TensorEntry& tensor) { return &tensor; });
  std::ranges::sort(by_place, {}, [](const TensorEntry* tensor) { return std::pair(tensor->begin, tensor->bytes); });
  std::uint64_t end = 0;
  for (const TensorEntry* tensor : by_place) {
    if (tensor->begin != end) {
      reject("{}: tensor {} begins at byte {} of the data: {}, because the tensor before it ends at {}", path,
             shown_name(tensor->name), tensor->begin, tensor->begin < end ? "an overlap" : "a hole", end);
    }
    end += tensor->bytes;
  }
  if (end == data_bytes) return;
  throw ConfigError(
      end > data_bytes
          ? fmt::format("{}: is cut off: its tensors take {} bytes, it has {}", path, end, data_bytes)
          : fmt::format("{}: has {} bytes after its last tensor; they belong to no tensor", path, data_bytes - end));
}

}  // namespace

std::string shown_name(std::string_view name) {
  constexpr std::size_t kLongest = 120;
  return fmt::format("'{}'", printable(name, kLongest));
}

TensorTable::TensorTable(const std::string& path, std::uint64_t file_bytes, const ReadBytes& read) {
  const std::uint64_t length = header_bytes(path, file_bytes, read);
  std::string header(length, '\0');
  read(kLengthBytes, std::as_writable_bytes(std::span(header)));
  // The format allows no blanks before the header, only behind it.
  if (!header.starts_with('{')) reject("{}: its header does not begin with '{{'; it is not a safetensors file", path);
  // Its fields are distinct and in the order of their names.
  const nlohmann::json json = parse_json(header, path);
  tensors_.reserve(json.size());
  for (const auto& [name, value] : json.items()) {
    if (name != kMetadataName) {
      tensors_.push_back(entry_of(JsonValue(value, path, "tensor " + shown_name(name)), name));
      continue;
    }
    const JsonValue metadata(value, path, kMetadataName);
    if (!value.is_object()) metadata.fail(fmt::format("expected an object, found {}", value.type_name()));
    if (value.size() > kMaxMetadata) metadata.fail(fmt::format("more than {} texts", kMaxMetadata));
    for (const auto& [key, text] : value.items())
      metadata_[key] = JsonValue(text, path, fmt::format("{}, {}", kMetadataName, shown_name(key))).text();
  }
  const std::uint64_t data_begin = kLengthBytes + length;
  require_cover(path, tensors_, file_bytes - data_begin);
  for (TensorEntry& tensor : tensors_) tensor.begin += data_begin;
}

std::optional<TensorEntry> TensorTable::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &TensorEntry::name);
  return found == tensors_.end() || found->name != name ? std::nullopt : std::optional(*found);
}

std::vector<std::string> TensorTable::names() const { return mapped<std::string>(tensors_, &TensorEntry::name); }

std::uint64_t bytes_of(ElementType type, const std::vector<std::int64_t>& shape) {
  // In bits, because elements of F4 and F6 share bytes.
  std::uint64_t bits = bits_of(type);
  for (const std::int64_t size : shape) bits *= static_cast<std::uint64_t>(size);
  return bits / 8;
}

SafetensorsLayout lay_out(std::vector<TensorEntry> tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t end = 0;  // end of the data so far, in bytes
  for (TensorEntry& tensor : tensors) {
    tensor.bytes = bytes_of(tensor.type, tensor.shape);
    tensor.begin = end;
    end += tensor.bytes;
    header[tensor.name] = {
        {"dtype", to_text(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, end}}};
  }
  std::string text = json_text(header);
  // Blanks behind the header align the data, as the format recommends.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    reject(
        "{} tensors need a header of {} bytes, and no safetensors file has more than {}; write more and smaller files",
        tensors.size(), text.size(), kMaxHeaderBytes);
  }
  SafetensorsLayout layout;
  for (std::uint64_t length = text.size(), i = 0; i < 8; ++i)
    layout.head += static_cast<char>(length >> (8 * i) & 0xffU);
  // The length before it is little endian, whatever the byte order of this machine.
  layout.head += text;
  // Offsets in the header count from its end; TensorEntry::begin from the start of the file.
  for (TensorEntry& tensor : tensors) tensor.begin += layout.head.size();
  layout.tensors = std::move(tensors);
  layout.file_bytes = layout.head.size() + end;
  return layout;
}

}  // namespace chimera

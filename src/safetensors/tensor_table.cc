#include "safetensors/tensor_table.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "core/character_iterator.h"
#include "core/content.h"
#include "core/error.h"
#include "safetensors/header_reader.h"

namespace chimera {
namespace {

constexpr std::uint64_t kLengthBytes = 8;

/// Throws ConfigError if the first bytes are those of another format.
void require_tensors(const std::string& path, std::uint64_t file_bytes, const ReadBytes& read) {
  std::string head(std::min<std::uint64_t>(file_bytes, kContentHead), '\0');
  read(0, std::as_writable_bytes(std::span(head)));
  require_downloaded_content(path, head);
  const std::string_view start = std::string_view(head).substr(0, kLengthBytes);
  if (std::ranges::all_of(start, [](unsigned char c) { return (c >= ' ' && c < 0x7F) || c == '\n'; })) {
    throw ConfigError(fmt::format("{}: begins with the text {}; expected a safetensors file", path, shown_name(head)));
  }
}

std::uint64_t header_bytes(const std::string& path, std::uint64_t file_bytes, const ReadBytes& read) {
  if (file_bytes < kLengthBytes) {
    throw ConfigError(fmt::format("{}: {} bytes are too few for a safetensors file", path, file_bytes));
  }
  require_tensors(path, file_bytes, read);
  std::array<std::byte, kLengthBytes> little_endian{};
  read(0, little_endian);
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8U | std::to_integer<std::uint64_t>(little_endian[i]);
  if (length > kMostHeaderBytes) {
    throw ConfigError(
        fmt::format("{}: gives its header {} bytes; safetensors allows at most {}", path, length, kMostHeaderBytes));
  }
  if (length > file_bytes - kLengthBytes) {
    throw ConfigError(
        fmt::format("{}: is cut off: its header has {} bytes, the whole file only {}", path, length, file_bytes));
  }
  return length;
}

void read_header(const std::string& path, std::uint64_t length, const ReadBytes& read, HeaderReader& reader) {
  JsonBytes bytes(path, read, kLengthBytes, length);
  if (bytes.at_end() || bytes.peek() != '{') {
    throw ConfigError(fmt::format("{}: its header does not begin with '{{'; it is not a safetensors file", path));
  }
  (void)nlohmann::json::sax_parse(CharacterIterator(bytes), CharacterIterator<JsonBytes>(), &reader);
}

}  // namespace

TensorTable::TensorTable(const std::string& path, std::uint64_t file_bytes, const ReadBytes& read) {
  const std::uint64_t length = header_bytes(path, file_bytes, read);
  HeaderReader reader(path, *this);
  read_header(path, length, read, reader);
  data_begin_ = kLengthBytes + length;
  require_cover(path, file_bytes - data_begin_);
  require_distinct(path);
}

void TensorTable::require_cover(const std::string& path, std::uint64_t data_bytes) {
  std::sort(rows_.begin(), rows_.end(),
            [](const Row& a, const Row& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  std::uint64_t end = 0;
  for (const Row& row : rows_) {
    if (row.begin != end) {
      throw ConfigError(
          fmt::format("{}: tensor {} begins at byte {} of the data: {}, because the tensor before it ends at {}", path,
                      shown_name(row.name), row.begin, row.begin < end ? "an overlap" : "a hole", end));
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
  throw ConfigError(fmt::format("{}: tensor {} is in its header twice", path, shown_name(twice->name)));
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

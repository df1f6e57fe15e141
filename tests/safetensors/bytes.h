#pragma once
// Valid and invalid safetensors files.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "safetensors/safetensors_file.h"
#include "safetensors/weight_files.h"
#include "support/message_of.h"

namespace chimera {

/// Reads from a text as from a file.
inline ReadBytes reader_of(std::string_view text) {
  return [text](std::uint64_t offset, std::span<std::byte> into) {
    if (offset > text.size() || into.size() > text.size() - offset) throw Error("read beyond the end");
    std::memcpy(into.data(), text.data() + offset, into.size());
  };
}

/// A file with this header and `data_bytes` bytes of data.
inline std::string file_of(std::string_view header, std::size_t data_bytes) {
  std::string text;
  for (std::size_t i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> (8 * i) & 0xffU);
  return text + std::string(header) + std::string(data_bytes, 'x');
}

inline TensorTable table_of(std::string_view file) { return {"w", file.size(), reader_of(file)}; }

/// The reader's error for a file; empty if the file is valid.
inline std::string refusal_of(std::string_view file) {
  return testing::message_of([&] { (void)table_of(file); });
}

/// The reader's error for an index; empty if the index is valid.
inline std::string index_refusal_of(std::string_view text) {
  return testing::message_of([&] { (void)read_weight_map("i", text); });
}

}  // namespace chimera

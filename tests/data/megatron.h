#pragma once
// Valid and invalid files in Megatron's format.

#include <cstdint>
#include <string>
#include <vector>

#include "data/token_format.h"

namespace chimera {

/// The bytes of a number or header in memory.
template <class Value>
std::string bytes_of(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// Two documents with three sequences and six tokens in all, unless a test changes them.
struct MegatronFiles {
  MegatronIndexHeader header{.type_code = 8, .sequences = 3, .documents = 3};
  std::vector<std::int32_t> lengths = {2, 3, 1};
  std::vector<std::int64_t> pointers = {0, 4, 10};
  std::vector<std::int64_t> documents = {0, 1, 3};
  std::int64_t token_bytes = 12;

  [[nodiscard]] std::string index() const {
    std::string bytes = bytes_of(header);
    for (const std::int32_t length : lengths) bytes += bytes_of(length);
    for (const std::int64_t pointer : pointers) bytes += bytes_of(pointer);
    for (const std::int64_t document : documents) bytes += bytes_of(document);
    return bytes;
  }
};

}  // namespace chimera

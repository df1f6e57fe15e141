#pragma once
// The index of a set of weights in several files: `model.safetensors.index.json`.

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "safetensors/tensor_table.h"
#include "safetensors/text_pool.h"

namespace chimera {

/// Which file has which tensor, all by name.
struct WeightMap {
  struct Row {
    std::string_view tensor;
    std::uint32_t file = 0;  ///< which of `files`
  };
  std::vector<std::string> files;  ///< in the order in which the index first names them
  std::deque<Row> rows;            ///< ascending by tensor
  TextPool texts;                  ///< what the rows point into
};

/// No index is longer, nor names more files.
inline constexpr std::uint64_t kMostIndexBytes = 32'000'000;
inline constexpr std::size_t kMostWeightFiles = 10'000;

/// Reads the `weight_map` of an index of `bytes` bytes; what else it has is read past. `path` is what messages call it.
/// Throws ConfigError unless it is one JSON object in UTF-8, at most kMostIndexBytes, whose one `weight_map` gives
/// every tensor, once, the name of a safetensors file beside the index: a name alone, without a folder.
[[nodiscard]] WeightMap read_weight_map(const std::string& path, std::uint64_t bytes, const ReadBytes& read);

}  // namespace chimera

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "safetensors/safetensors_layout.h"
#include "safetensors/tensor_table.h"

// The index of a set of weights in several files: `model.safetensors.index.json`.

// Writing `model.safetensors.index.json`, which safetensors/weight_map.h reads.

// All weights of a model's folder: one safetensors file, or several with an index.

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

/// The index of weights that lie in several files: the name of each file, and its tensors.
[[nodiscard]] std::string weight_index(const std::vector<std::pair<std::string, std::vector<TensorEntry>>>& files);

inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kIndexName = "model.safetensors.index.json";

/// The weights of a folder, open for reading. Headers are in memory, elements are not. Any number of threads may read.
class WeightFiles {
 public:
  /// Opens `folder`/model.safetensors or, where there is none, model.safetensors.index.json and the files that it
  /// names. Throws ConfigError where the folder has neither (weights as pickles, `*.bin`, are never read: they can run
  /// code), where one of them is unsound, where a file that the index names lies outside of the folder (through a
  /// link), or where the index and the files do not have the same tensors.
  explicit WeightFiles(const std::string& folder);

  /// A tensor and the file that has it.
  struct Found {
    const SafetensorsFile* file = nullptr;
    TensorEntry tensor;
  };
  [[nodiscard]] std::optional<Found> find(std::string_view tensor) const;
  /// The names of all tensors, ascending.
  [[nodiscard]] std::vector<std::string> names() const;
  /// The files in the order in which the index first names them.
  [[nodiscard]] const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  void open_indexed(const std::string& folder, const std::string& index);

  std::vector<SafetensorsFile> files_;
};

}  // namespace chimera

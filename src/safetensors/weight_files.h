#pragma once
// All weights of a model's folder: one safetensors file, or several with an index.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "safetensors/safetensors_file.h"

namespace chimera {

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

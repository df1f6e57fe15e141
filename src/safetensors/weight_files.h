#pragma once

// The weights of a Hugging Face folder: model.safetensors, or several files with the index
// model.safetensors.index.json, which names the file of each tensor. Readers find a tensor by its name, in whichever
// file it is.
//
// plan_export() plans the files of an exported model: which tensor goes to which file, and at which byte. A model may
// be divided over several processes (ranks). The plan needs only names and shapes, so all ranks make the same plan, and
// then write their own tensors into the files at the same time (PartWriter in hugging_face/staged_folder.h).

#include "safetensors/safetensors_file.h"

namespace chimera {

/// File name by tensor name; all files are in one folder.
using WeightMap = std::map<std::string, std::string>;

inline constexpr std::uint64_t kMaxIndexBytes = 32'000'000;  ///< a larger index is rejected
inline constexpr std::size_t kMaxWeightFiles = 10'000;

/// Parses the text of model.safetensors.index.json; `path` is for messages. Throws ConfigError unless it is one JSON
/// object in UTF-8 with one object `weight_map`. Its members give each tensor, once, the name of a safetensors file in
/// the same folder. A name with a path is an error, because an index from an untrusted source could name any file.
/// Other fields are ignored.
[[nodiscard]] WeightMap read_weight_map(const std::string& path, std::string_view text);

/// Returns the text of model.safetensors.index.json for these files (name and tensors).
[[nodiscard]] std::string weight_index(const std::vector<std::pair<std::string, std::vector<TensorEntry>>>& files);

inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kIndexName = "model.safetensors.index.json";

/// Several safetensors files, in which tensors are found by name: base class of WeightFiles, and of CheckpointTensors
/// (checkpoint/shard.h). Only headers are in memory. Any number of threads may read.
class TensorFiles {
 public:
  /// A tensor and its file, which the TensorFiles own.
  struct Found {
    const SafetensorsFile* file = nullptr;
    TensorEntry tensor;
  };
  /// Returns the tensor of this name, or nothing if there is none.
  [[nodiscard]] std::optional<Found> find(std::string_view tensor) const;
  /// Returns the names of all tensors, ascending.
  [[nodiscard]] std::vector<std::string> names() const;

 protected:
  std::vector<SafetensorsFile> files_;
};

/// Weights of a folder: one safetensors file, or several with an index.
class WeightFiles : public TensorFiles {
 public:
  /// Opens the files that model.safetensors.index.json names or, if it does not exist, model.safetensors. Never reads
  /// pickles (`*.bin`), which can run code. Throws ConfigError if both are missing, both exist but the index does not
  /// name model.safetensors, a file is missing, invalid or (through a link) outside of the folder, or index and files
  /// have different tensors. Several files may have equal copies of a tensor.
  explicit WeightFiles(const std::string& folder);

 private:
  void open_indexed(const std::string& folder, const std::string& index);
};

/// Returns whether type, shape and elements are equal, bit by bit. Reads the elements; throws ConfigError if a file
/// cannot be read.
[[nodiscard]] bool are_equal(const WeightFiles::Found& one, const WeightFiles::Found& other);

/// A safetensors file of the export.
struct ExportFile {
  std::string name;          ///< without folder
  SafetensorsLayout layout;  ///< its header and the position of each tensor
};

/// All files of weights.
struct ExportPlan {
  std::vector<ExportFile> files;
  std::string index;  ///< text of model.safetensors.index.json; empty for a single file
};

/// Maximum size of a file by default, as in save_pretrained() of transformers.
inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

/// Distributes tensors (name, type, shape) in order to files with at most `shard_bytes` bytes of tensors; a larger
/// tensor gets its own file. Within a file, wider elements come first. Throws ConfigError if the header of a file is
/// longer than readers accept (lay_out()).
[[nodiscard]] ExportPlan plan_export(std::vector<TensorEntry> tensors, std::uint64_t shard_bytes);

/// Parses `5GB`, `300MB`, `1GiB` or `1000` (bytes). Throws ConfigError, which names `flag`, for anything else and 0.
[[nodiscard]] std::uint64_t parse_bytes(const std::string& flag, const std::string& text);

}  // namespace chimera

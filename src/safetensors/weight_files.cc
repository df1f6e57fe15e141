#include "safetensors/weight_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "safetensors/header_reader.h"
#include "safetensors/regular_file.h"
#include "safetensors/weight_map.h"

namespace chimera {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// What to say of a folder without safetensors.
[[noreturn]] void refuse(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw ConfigError(fmt::format("{}: is no folder; give one with config.json and {}", folder, kWeightsName));
  }
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin"}) {
    if (!is_there(fs::path(folder) / pickle)) continue;
    throw ConfigError(
        fmt::format("{}/{}: is a pickle, which can run any code when it is read, so it never is; save the "
                    "model as safetensors (save_pretrained does)",
                    folder, pickle));
  }
  throw ConfigError(fmt::format("{}: has neither {} nor {}", folder, kWeightsName, kIndexName));
}

/// The real path of a file that an index names. A link may not lead out of the folder: an index from elsewhere would
/// choose what is read.
std::string path_within(const std::string& folder, const std::string& index, const std::string& name) {
  std::error_code error;
  const fs::path real = fs::canonical(fs::path(folder) / name, error);
  if (error) throw ConfigError(fmt::format("{}: {} cannot be found ({})", index, shown_name(name), error.message()));
  if (real.parent_path() == fs::canonical(folder, error)) return real.string();
  throw ConfigError(fmt::format("{}/{}: is a link out of the folder, to {}; copy the file itself there (cp -L)", folder,
                                name, real.string()));
}

WeightMap weight_map_of(const std::string& index) {
  const RegularFile file(index);
  return read_weight_map(index, file.bytes(),
                         [&](std::uint64_t offset, std::span<std::byte> into) { file.read(offset, into); });
}

}  // namespace

WeightFiles::WeightFiles(const std::string& folder) {
  const std::string single = (fs::path(folder) / kWeightsName).string();
  const std::string index = (fs::path(folder) / kIndexName).string();
  if (is_there(single)) {
    files_.emplace_back(single);
  } else if (is_there(index)) {
    open_indexed(folder, index);
  } else {
    refuse(folder);
  }
}

void WeightFiles::open_indexed(const std::string& folder, const std::string& index) {
  const WeightMap map = weight_map_of(index);
  std::size_t tensors = 0;
  for (const std::string& name : map.files) {
    files_.emplace_back(path_within(folder, index, name));
    tensors += files_.back().tensors().size();
  }
  for (const auto& [tensor, file] : map.rows) {
    if (files_[file].tensors().find(tensor)) continue;
    throw ConfigError(
        fmt::format("{}: tensor {} is not in {}, which should have it", index, shown_name(tensor), map.files[file]));
  }
  if (tensors == map.rows.size()) return;
  for (const SafetensorsFile& file : files_) {  // one of them has a tensor that the index does not say it has
    for (const std::string& tensor : file.tensors().names()) {
      const auto row = std::ranges::lower_bound(map.rows, tensor, {}, &WeightMap::Row::tensor);
      if (row != map.rows.end() && row->tensor == tensor && &files_[row->file] == &file) continue;
      throw ConfigError(
          fmt::format("{}: has tensor {}, which {} does not know there", file.path(), shown_name(tensor), kIndexName));
    }
  }
}

std::optional<WeightFiles::Found> WeightFiles::find(std::string_view tensor) const {
  for (const SafetensorsFile& file : files_) {
    if (auto entry = file.tensors().find(tensor)) return Found{&file, *std::move(entry)};
  }
  return std::nullopt;
}

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> names;
  for (const SafetensorsFile& file : files_) {
    auto more = file.tensors().names();
    names.insert(names.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace chimera

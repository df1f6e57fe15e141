#include "checkpoint/tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/error.h"

namespace chimera {

CheckpointTensors::CheckpointTensors(const std::string& checkpoint, const Manifest& manifest) {
  try {
    for (const FileRecord& file : manifest.files) {
      if (file.name.ends_with(".safetensors")) files_.emplace_back(checkpoint + "/" + file.name);
    }
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
  const std::vector<std::string> all = names();
  const auto doubled = std::ranges::adjacent_find(all);
  if (doubled != all.end()) throw CheckpointError(fmt::format("{}: has tensor {} twice", checkpoint, *doubled));
}

std::optional<WeightFiles::Found> CheckpointTensors::find(std::string_view tensor) const {
  for (const SafetensorsFile& file : files_) {
    if (auto found = file.tensors().find(tensor)) return WeightFiles::Found{&file, *std::move(found)};
  }
  return std::nullopt;
}

std::vector<std::string> CheckpointTensors::names() const {
  std::vector<std::string> names;
  for (const SafetensorsFile& file : files_) {
    for (std::string& name : file.tensors().names()) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace chimera

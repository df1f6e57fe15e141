#include "hugging_face/model_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/input_file.h"
#include "hugging_face/config_json.h"
#include "hugging_face/stored_names.h"
#include "safetensors/header_reader.h"

namespace chimera {
namespace {

std::string config_path(const std::string& folder) { return (std::filesystem::path(folder) / kConfigName).string(); }

std::string read_config(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    throw ConfigError(fmt::format("{}: is no folder; give one with {} and {}", folder, kConfigName, kWeightsName));
  }
  const std::string path = config_path(folder);
  if (!std::filesystem::is_regular_file(path, error)) {
    throw ConfigError(fmt::format("{}: has no {}; give the folder of a Hugging Face model", folder, kConfigName));
  }
  return read_whole(path, kMostConfigBytes);
}

/// The last part of the path, also of `model/`.
std::string name_of(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

bool is_floating(ElementType type) {
  return type == ElementType::F32 || type == ElementType::F64 || type == ElementType::BF16 || type == ElementType::F16;
}

}  // namespace

ModelFolder::ModelFolder(std::string path)
    : path_(std::move(path)),
      config_json_(read_config(path_)),
      model_(model_from_config_json(config_json_, config_path(path_), name_of(path_))),
      weights_(path_) {
  require_whole();
}

/// Block by block, as a config may claim more blocks than memory could list.
void ModelFolder::require_whole() const {
  std::map<const SafetensorsFile*, std::vector<std::string>> found;
  const auto find_all = [&](const std::vector<ParameterSpec>& parameters) {
    for (const ParameterSpec& parameter : parameters) {
      WeightFiles::Found weights = find(parameter);
      found[weights.file].push_back(std::move(weights.tensor.name));
    }
  };
  find_all(embedding_parameters(model_));
  for (std::int64_t layer = 0; layer < model_.layers; ++layer) find_all(block_parameters(model_, layer));
  find_all(head_parameters(model_));
  for (const SafetensorsFile& file : weights_.files()) {
    std::vector<std::string>& names = found[&file];
    std::ranges::sort(names);
    for (std::size_t i = 0; i < file.tensors().size(); ++i) {
      const std::string tensor = file.tensors()[i].name;
      if (std::ranges::binary_search(names, tensor) || is_no_weight(model_, tensor)) continue;
      const auto repeated = repeated_parameter(model_, tensor);
      if (!repeated) {
        throw ConfigError(fmt::format("{}: tensor {} belongs to no {} model of the sizes in {}", path_,
                                      shown_name(tensor), to_text(model_.family), kConfigName));
      }
      require_equal(tensor, *repeated);
    }
  }
}

/// Of a tied model: `tensor`, which its file has beside the parameter, is the same.
void ModelFolder::require_equal(const std::string& tensor, const ParameterSpec& parameter) const {
  const WeightFiles::Found one = find(parameter);
  const WeightFiles::Found other = *weights_.find(tensor);
  bool equal = one.tensor.type == other.tensor.type && one.tensor.shape == other.tensor.shape;
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;
  std::vector<std::byte> left(kBlock);
  std::vector<std::byte> right(kBlock);
  for (std::uint64_t at = 0; equal && at < one.tensor.bytes; at += kBlock) {
    const std::size_t bytes = std::min(kBlock, one.tensor.bytes - at);
    one.file->read(one.tensor, at, std::span(left).first(bytes));
    other.file->read(other.tensor, at, std::span(right).first(bytes));
    equal = std::equal(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(bytes), right.begin());
  }
  if (equal) return;
  throw ConfigError(
      fmt::format("{}: tie_word_embeddings is true, but tensor '{}' is not '{}'; set it to false in {}, or "
                  "leave the tensor out",
                  path_, tensor, one.tensor.name, kConfigName));
}

WeightFiles::Found ModelFolder::find(const ParameterSpec& parameter) const {
  const std::vector<std::string> names = stored_names(model_, parameter.name);
  for (const std::string& name : names) {
    auto found = weights_.find(name);
    if (!found) continue;
    if (!is_floating(found->tensor.type)) {
      throw ConfigError(fmt::format("{}: tensor '{}' is {}; weights must be F32, F64, BF16 or F16", found->file->path(),
                                    name, to_text(found->tensor.type)));
    }
    if (found->tensor.shape != parameter.shape) {
      throw ConfigError(fmt::format("{}: tensor '{}' is [{}], but the sizes in {} make it [{}]", found->file->path(),
                                    name, fmt::join(found->tensor.shape, ", "), kConfigName,
                                    fmt::join(parameter.shape, ", ")));
    }
    return *std::move(found);
  }
  throw ConfigError(fmt::format("{}: tensor '{}' is missing; a {} model of the sizes in {} has it", path_,
                                names.front(), to_text(model_.family), kConfigName));
}

std::vector<ParameterSpec> all_parameters(const ModelConfig& model) {
  return stage_parameters(model, {0, model.layers, true, true});
}

}  // namespace chimera

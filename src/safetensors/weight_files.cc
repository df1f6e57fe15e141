#include "safetensors/weight_files.h"

#include <algorithm>
#include <charconv>

#include "core/choices.h"
#include "core/content.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/reject.h"
#include "safetensors/regular_file.h"

// An index of a stranger must not make a reader open a file outside of the folder: read_weight_map() accepts plain
// names only, and path_within() follows links before the file is opened. Then index and files must agree in both
// directions, because a tensor that only one of them has means that the download is incomplete or mixed.

namespace chimera {
namespace {

constexpr const char* kSuffix = ".safetensors";

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& folder) {
  if (!is_folder(folder)) reject("{}: is not a folder; give a folder with config.json and {}", folder, kWeightsName);
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin"}) {
    // Names that torch.save() and old versions of transformers use.
    if (!path_exists(fs::path(folder) / pickle)) continue;
    reject(
        "{}/{}: is a pickle, which can run any code when it is read, so Chimera does not read it; save the model as "
        "safetensors (save_pretrained does)",
        folder, pickle);
  }
  reject("{}: has neither {} nor {}", folder, kWeightsName, kIndexName);
}

/// Links must not leave the folder: otherwise a foreign index chooses any file.
std::string path_within(const std::string& folder, const std::string& index, const std::string& name) {
  std::error_code error;
  // Resolved before the file is opened: the path that was checked is the path that is read.
  const fs::path real = fs::canonical(fs::path(folder) / name, error);
  if (error) reject("{}: {} cannot be found ({}); download the folder again", index, shown_name(name), error.message());
  if (real.parent_path() == fs::canonical(folder, error)) return real.string();
  reject("{}/{}: is a link out of the folder, to {}; copy the file itself into the folder (cp -L)", folder, name,
         real.string());
}

WeightMap weight_map_of(const std::string& index) {
  const RegularFile file(index);
  if (file.bytes() > kMaxIndexBytes)
    reject("{}: has {} bytes; no index has more than {}", index, file.bytes(), kMaxIndexBytes);
  std::string text(file.bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  require_downloaded_content(index, text);
  return read_weight_map(index, text);
}

std::vector<std::vector<TensorEntry>> dealt_out(std::vector<TensorEntry> tensors, std::uint64_t shard_bytes) {
  std::vector<std::vector<TensorEntry>> shards(1);
  std::uint64_t bytes = 0;  // in the last shard
  for (TensorEntry& tensor : tensors) {
    const std::uint64_t more = bytes_of(tensor.type, tensor.shape);
    // A tensor above the limit gets a file of its own.
    if (!shards.back().empty() && bytes + more > shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

}  // namespace

WeightMap read_weight_map(const std::string& path, std::string_view text) {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) reject("{}: {}", path, what);
  };
  const nlohmann::json index = parse_json(text, path);
  require(index.is_object(), "must be an object with the field weight_map");
  require(index.contains("weight_map"), "has no weight_map; it is not an index of safetensors files");
  const nlohmann::json& names = index["weight_map"];
  require(names.is_object(), "weight_map must be an object");
  require(!names.empty(), "its weight_map names no tensor");
  WeightMap map;
  for (const auto& [tensor, name] : names.items()) {
    require(name.is_string(),
            fmt::format("weight_map: tensor {}: the name of a file must be a text", shown_name(tensor)));
    const auto& file = name.get_ref<const std::string&>();
    const bool is_plain = file.find('/') == file.npos && file.find('\0') == file.npos && !file.starts_with('.');
    const std::string place =
        fmt::format("weight_map: tensor {} is said to be in {}", shown_name(tensor), shown_name(file));
    require(is_plain && !file.empty(), place + "; it must be a file of this folder, named without a path");
    require(file.ends_with(kSuffix),
            fmt::format("{}; Chimera reads weights from files whose names end in {}: save them "
                        "as safetensors (save_pretrained does), or rename them",
                        place, kSuffix));
    map.emplace(tensor, file);
  }
  return map;
}

std::string weight_index(const std::vector<std::pair<std::string, std::vector<TensorEntry>>>& files) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::uint64_t total = 0;
  for (const auto& [file, tensors] : files) {
    for (const TensorEntry& tensor : tensors) {
      map[tensor.name] = file;
      total += tensor.bytes;
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  return json_text(index, 2) + "\n";
}

WeightFiles::WeightFiles(const std::string& folder) {
  const std::string single = (fs::path(folder) / kWeightsName).string();
  const std::string index = (fs::path(folder) / kIndexName).string();
  if (path_exists(index))
    open_indexed(folder, index);
  else if (path_exists(single))
    files_.emplace_back(single);
  else
    refuse(folder);
}

void WeightFiles::open_indexed(const std::string& folder, const std::string& index) {
  const WeightMap map = weight_map_of(index);
  std::map<std::string, const SafetensorsFile*> opened;
  for (const auto& [tensor, name] : map) opened[name] = nullptr;
  if (opened.size() > kMaxWeightFiles) reject("{}: weight_map names more than {} files", index, kMaxWeightFiles);
  // Two sets of weights: transformers reads the single file, whatever it holds.
  if (!opened.contains(kWeightsName) && path_exists(fs::path(folder) / kWeightsName)) {
    reject("{}: has both {} and {}, which names other files; remove the one that is out of date", folder, kWeightsName,
           kIndexName);
  }
  // Pointers to the files are kept in `opened`.
  files_.reserve(opened.size());
  for (auto& [name, file] : opened) file = &files_.emplace_back(path_within(folder, index, name));
  for (const auto& [tensor, name] : map) {
    if (opened.at(name)->tensors().find(tensor)) continue;
    reject("{}: tensor {} is not in {}, which should have it", index, shown_name(tensor), name);
  }
  for (const auto& [name, file] : opened) {
    for (const std::string& tensor : file->tensors().names()) {
      const auto place = map.find(tensor);
      if (place == map.end()) {
        reject("{}: has tensor {}, but {} does not assign this tensor to this file", file->path(), shown_name(tensor),
               kIndexName);
      }
      // A tied matrix may be in two files; the index names one of them.
      const SafetensorsFile* const assigned = opened.at(place->second);
      if (assigned == file ||
          are_equal({file, *file->tensors().find(tensor)}, {assigned, *assigned->tensors().find(tensor)}))
        continue;
      reject("{}: tensor {} is in {} and, with other content, in {}; keep one of them", index, shown_name(tensor),
             place->second, name);
    }
  }
}

std::optional<TensorFiles::Found> TensorFiles::find(std::string_view tensor) const {
  for (const SafetensorsFile& file : files_)
    if (auto entry = file.tensors().find(tensor)) return Found{&file, *std::move(entry)};
  return std::nullopt;
}

std::vector<std::string> TensorFiles::names() const {
  std::vector<std::string> names;
  for (const SafetensorsFile& file : files_) {
    auto more = file.tensors().names();
    names.insert(names.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  std::ranges::sort(names);
  // A tensor with equal copies in several files counts once.
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool are_equal(const WeightFiles::Found& one, const WeightFiles::Found& other) {
  if (one.tensor.type != other.tensor.type || one.tensor.shape != other.tensor.shape) return false;
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;
  // Block by block, so that no tensor is in memory as a whole.
  std::vector<std::byte> left(std::min(kBlock, one.tensor.bytes));
  std::vector<std::byte> right(left.size());
  for (std::uint64_t at = 0; at < one.tensor.bytes; at += kBlock) {
    const std::size_t bytes = std::min(kBlock, one.tensor.bytes - at);
    one.file->read(one.tensor, at, std::span(left).first(bytes));
    other.file->read(other.tensor, at, std::span(right).first(bytes));
    if (!std::ranges::equal(std::span(left).first(bytes), std::span(right).first(bytes))) return false;
  }
  return true;
}

ExportPlan plan_export(std::vector<TensorEntry> tensors, std::uint64_t shard_bytes) {
  ExportPlan plan;
  auto shards = dealt_out(std::move(tensors), shard_bytes);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    // Wider elements first, so that each tensor is aligned to its elements.
    std::ranges::stable_sort(shards[i], std::greater<>(),
                             [](const TensorEntry& tensor) { return bits_of(tensor.type); });
    // The names of save_pretrained(), which readers know.
    const std::string name =
        shards.size() == 1 ? kWeightsName : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    plan.files.push_back({name, lay_out(std::move(shards[i]), {{"format", "pt"}})});
  }
  if (plan.files.size() > 1) {
    std::vector<std::pair<std::string, std::vector<TensorEntry>>> files;
    for (const ExportFile& file : plan.files) files.emplace_back(file.name, file.layout.tensors);
    plan.index = weight_index(files);
  }
  return plan;
}

std::uint64_t parse_bytes(const std::string& flag, const std::string& text) {
  constexpr std::array<Named<std::uint64_t>, 7> kUnits = {{{1, ""},
                                                           {1'000, "KB"},
                                                           {1'000'000, "MB"},
                                                           {1'000'000'000, "GB"},
                                                           {std::uint64_t{1} << 10, "KiB"},
                                                           {std::uint64_t{1} << 20, "MiB"},
                                                           {std::uint64_t{1} << 30, "GiB"}}};
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // The number ends where from_chars() stops; the rest is the unit.
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const auto known = std::ranges::find(kUnits, unit, &Named<std::uint64_t>::name);
  std::uint64_t bytes = 0;
  const bool fits = error == std::errc() && known != kUnits.end() && number > 0 &&
                    !__builtin_mul_overflow(number, known->value, &bytes);
  if (!fits) reject("{} '{}': must be a size such as 5GB, 300MB, 1GiB or 1000", flag, text);
  return bytes;
}

}  // namespace chimera

#include "safetensors/weight_files.h"

#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/character_iterator.h"
#include "core/content.h"
#include "core/error.h"
#include "core/json.h"
#include "safetensors/json_bytes.h"
#include "safetensors/regular_file.h"

namespace chimera {
namespace {

constexpr const char* kSuffix = ".safetensors";
constexpr std::size_t kDeepest = 100;  // for nested objects and arrays

/// SAX handler that keeps the texts of `weight_map`.
class WeightMapReader {
 public:
  WeightMapReader(std::string path, WeightMap& map) : path_(std::move(path)), map_(map) {}

  [[nodiscard]] bool found() const { return found_; }

  bool null() { return other(); }
  bool boolean(bool /*value*/) { return other(); }
  bool number_integer(std::int64_t /*value*/) { return other(); }
  bool number_unsigned(std::uint64_t /*value*/) { return other(); }
  bool number_float(double /*value*/, const std::string& /*text*/) { return other(); }
  bool binary(nlohmann::json::binary_t& /*value*/) { return other(); }
  bool string(std::string& value) {
    if (!in_map_) return other();
    map_.rows.push_back({map_.texts.keep(name_), index_of(std::move(value))});
    return true;
  }
  bool start_object(std::size_t /*size*/) {
    if (depth_ == 1 && name_ == "weight_map") {
      if (found_) fail("weight_map is given twice");
      found_ = in_map_ = true;
      return deeper();
    }
    return depth_ == 0 ? deeper() : other() && deeper();
  }
  bool end_object() {
    in_map_ = false;
    --depth_;
    return true;
  }
  bool start_array(std::size_t /*size*/) { return other() && deeper(); }
  bool end_array() {
    --depth_;
    return true;
  }
  bool key(std::string& name) {
    if (in_map_ || depth_ == 1) name_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    fail(fmt::format("byte {}: {}", position, json_fault(error)));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw ConfigError(fmt::format("{}: {}", path_, what)); }
  bool other() const {
    if (in_map_) fail(fmt::format("weight_map: tensor {}: the name of a file must be a text", shown_name(name_)));
    if (depth_ == 0) fail("must be an object with the field weight_map");
    if (depth_ == 1 && name_ == "weight_map") fail("weight_map must be an object");
    return true;
  }
  bool deeper() {
    if (++depth_ > kDeepest) fail(fmt::format("more than {} nested objects and arrays", kDeepest));
    return true;
  }
  std::uint32_t index_of(std::string file) {
    const auto next = static_cast<std::uint32_t>(map_.files.size());
    const auto [known, is_new] = indices_.try_emplace(file, next);
    if (!is_new) return known->second;
    require_plain(file);
    if (next == kMostWeightFiles) fail(fmt::format("weight_map names more than {} files", kMostWeightFiles));
    map_.files.push_back(std::move(file));
    return next;
  }
  void require_plain(const std::string& file) const {
    const bool plain = file.find('/') == file.npos && file.find('\0') == file.npos && !file.starts_with('.');
    if (plain && file.ends_with(kSuffix)) return;
    fail(
        fmt::format("weight_map: tensor {} is said to be in {}; it must be a file of this folder, named without a "
                    "path, such as model-00001-of-00002{}",
                    shown_name(name_), shown_name(file), kSuffix));
  }

  std::string path_;
  WeightMap& map_;
  std::map<std::string, std::uint32_t> indices_;
  std::string name_;
  std::size_t depth_ = 0;
  bool found_ = false;
  bool in_map_ = false;
};

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

[[noreturn]] void refuse(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw ConfigError(fmt::format("{}: is not a folder; give a folder with config.json and {}", folder, kWeightsName));
  }
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin"}) {
    if (!is_there(fs::path(folder) / pickle)) continue;
    throw ConfigError(
        fmt::format("{}/{}: is a pickle, which can run any code when it is read, so Chimera does not read it; save the "
                    "model as safetensors (save_pretrained does)",
                    folder, pickle));
  }
  throw ConfigError(fmt::format("{}: has neither {} nor {}", folder, kWeightsName, kIndexName));
}

/// Links must not leave the folder: otherwise a foreign index chooses any file.
std::string path_within(const std::string& folder, const std::string& index, const std::string& name) {
  std::error_code error;
  const fs::path real = fs::canonical(fs::path(folder) / name, error);
  if (error) throw ConfigError(fmt::format("{}: {} cannot be found ({})", index, shown_name(name), error.message()));
  if (real.parent_path() == fs::canonical(folder, error)) return real.string();
  throw ConfigError(
      fmt::format("{}/{}: is a link out of the folder, to {}; copy the file itself into the folder (cp -L)", folder,
                  name, real.string()));
}

WeightMap weight_map_of(const std::string& index) {
  const RegularFile file(index);
  std::string head(std::min<std::uint64_t>(file.bytes(), kContentHead), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  require_downloaded_content(index, head);
  return read_weight_map(index, file.bytes(),
                         [&](std::uint64_t offset, std::span<std::byte> into) { file.read(offset, into); });
}

}  // namespace

WeightMap read_weight_map(const std::string& path, std::uint64_t bytes, const ReadBytes& read) {
  if (bytes > kMostIndexBytes) {
    throw ConfigError(fmt::format("{}: has {} bytes; no index has more than {}", path, bytes, kMostIndexBytes));
  }
  WeightMap map;
  WeightMapReader reader(path, map);
  JsonBytes characters(path, read, 0, bytes);
  (void)nlohmann::json::sax_parse(CharacterIterator(characters), CharacterIterator<JsonBytes>(), &reader);
  if (!reader.found()) throw ConfigError(path + ": has no weight_map; it is not an index of safetensors files");
  if (map.rows.empty()) throw ConfigError(path + ": its weight_map names no tensor");
  std::ranges::sort(map.rows, {}, &WeightMap::Row::tensor);
  const auto twice = std::ranges::adjacent_find(map.rows, {}, &WeightMap::Row::tensor);
  if (twice != map.rows.end()) {
    throw ConfigError(fmt::format("{}: weight_map: tensor {} is given twice", path, shown_name(twice->tensor)));
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
  for (const SafetensorsFile& file : files_) {  // a file has a tensor that is not in the index
    for (const std::string& tensor : file.tensors().names()) {
      const auto row = std::ranges::lower_bound(map.rows, tensor, {}, &WeightMap::Row::tensor);
      if (row != map.rows.end() && row->tensor == tensor && &files_[row->file] == &file) continue;
      throw ConfigError(fmt::format("{}: has tensor {}, but {} does not assign this tensor to this file", file.path(),
                                    shown_name(tensor), kIndexName));
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

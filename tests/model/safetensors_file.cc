#include "model/safetensors_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"

namespace chimera {
namespace {

const std::map<std::string, at::ScalarType> kTypes = {
    {"F64", at::kDouble}, {"F32", at::kFloat}, {"I64", at::kLong}, {"BOOL", at::kBool}};

at::Tensor read_tensor(const nlohmann::json& entry, std::string_view data) {
  const auto begin = entry.at("data_offsets").at(0).get<std::size_t>();
  const auto end = entry.at("data_offsets").at(1).get<std::size_t>();
  const at::Tensor tensor =
      at::empty(entry.at("shape").get<std::vector<std::int64_t>>(), kTypes.at(entry.at("dtype").get<std::string>()));
  if (begin > end || end > data.size() || end - begin != tensor.nbytes()) throw Error("tensor outside of the file");
  std::ranges::copy(data.substr(begin, end - begin), static_cast<char*>(tensor.mutable_data_ptr()));  // may be empty
  return tensor;
}

}  // namespace

LoadedTensors read_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) throw Error(path + ": too short for a safetensors file");
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > bytes.size() - sizeof header_bytes) throw Error(path + ": header longer than the file");
  const std::string_view rest = std::string_view(bytes).substr(sizeof header_bytes);

  LoadedTensors result;
  const auto header = read_json(rest.substr(0, header_bytes));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      result.metadata = entry.get<std::map<std::string, std::string>>();
    } else {
      result.tensors[name] = read_tensor(entry, rest.substr(header_bytes));
    }
  }
  return result;
}

}  // namespace chimera

#include "model/safetensors.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/error.h"

namespace chimera {
namespace {

const char* type_name(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return "F64";
    case at::kFloat: return "F32";
    case at::kBFloat16: return "BF16";
    case at::kHalf: return "F16";
    case at::kLong: return "I64";
    case at::kInt: return "I32";
    case at::kByte: return "U8";
    case at::kBool: return "BOOL";
    default: throw Error(fmt::format("safetensors files do not hold tensors of {}", c10::toString(type)));
  }
}

std::string header_of(const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t end = offset + tensor.nbytes();
    header[name] = {
        {"dtype", type_name(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

void write_bytes(std::ofstream& file, const void* data, std::size_t size) {
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
}

}  // namespace

void write_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = header_of(tensors, metadata);
  const std::string unfinished = path + ".unfinished";
  std::ofstream file(unfinished, std::ios::binary);
  const std::uint64_t header_bytes = header.size();
  write_bytes(file, &header_bytes, sizeof header_bytes);
  write_bytes(file, header.data(), header.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor elements = tensor.contiguous();
    write_bytes(file, elements.const_data_ptr(), elements.nbytes());
  }
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(unfinished, path, error);
  if (file && !error) return;
  const std::string reason = error ? error.message() : std::generic_category().message(errno);
  std::filesystem::remove(unfinished, error);
  throw ConfigError(fmt::format("{}: cannot be written ({})", path, reason));
}

}  // namespace chimera

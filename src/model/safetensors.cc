#include "model/safetensors.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "model/element_types.h"
#include "safetensors/safetensors_layout.h"

namespace chimera {
namespace {

SafetensorsLayout layout_of(const std::map<std::string, at::Tensor>& tensors,
                            const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({.name = name, .type = element_type(tensor.scalar_type()), .shape = tensor.sizes().vec()});
  }
  return lay_out(std::move(entries), metadata);
}

void write_bytes(std::ofstream& file, const void* data, std::size_t size) {
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
}

}  // namespace

void write_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const SafetensorsLayout layout = layout_of(tensors, metadata);
  const std::string unfinished = path + ".unfinished";
  std::ofstream file(unfinished, std::ios::binary);
  write_bytes(file, layout.head.data(), layout.head.size());
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

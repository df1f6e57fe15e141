#include "model/safetensors.h"

#include <vector>

#include "core/files.h"
#include "model/element_types.h"
#include "safetensors/safetensors_file.h"

namespace chimera {

void write_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({.name = name, .type = element_type(tensor.scalar_type()), .shape = tensor.sizes().vec()});
  }
  // The map sorts by name, and lay_out() keeps the order of `entries`, so data follow the header in the same order
  // below.
  SafetensorsLayout layout = lay_out(std::move(entries), metadata);
  std::string text = std::move(layout.head);
  text.reserve(layout.file_bytes);
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor elements = tensor.contiguous();
    text.append(static_cast<const char*>(elements.const_data_ptr()), elements.nbytes());
  }
  write_whole(path, text);
}

}  // namespace chimera

// Fuzzes a safetensors file.

#include <cstring>

#include "fuzz/fuzzer.h"
#include "safetensors/safetensors_file.h"

namespace chimera::testing {
namespace {

ReadBytes bytes_reader(std::string_view bytes) {
  return [bytes](std::uint64_t offset, std::span<std::byte> into) {
    require(offset <= bytes.size() && into.size() <= bytes.size() - offset, "no byte beyond the file is read");
    std::memcpy(into.data(), bytes.data() + offset, into.size());
  };
}

/// Lays the same tensors out again and reads them back.
void exercise_layout(const std::vector<TensorEntry>& tensors) {
  const SafetensorsLayout layout = lay_out(tensors);
  const std::string file = layout.head + std::string(layout.file_bytes - layout.head.size(), '\0');
  const TensorTable table(kSource, file.size(), bytes_reader(file));
  const std::vector<TensorEntry>& back = table.all();
  require(back.size() == tensors.size(), "a layout reads back");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    require(back[i].name == tensors[i].name && back[i].type == tensors[i].type && back[i].shape == tensors[i].shape &&
                back[i].bytes == tensors[i].bytes,
            "a tensor reads back");
  }
}

void exercise_safetensors(std::string_view bytes) {
  const auto table = read_or_refuse([&] { return TensorTable(kSource, bytes.size(), bytes_reader(bytes)); });
  if (!table) return;
  std::uint64_t elements_bytes = 0;
  for (const TensorEntry& tensor : table->all()) {
    require(tensor.begin <= bytes.size() && tensor.bytes <= bytes.size() - tensor.begin, "tensors lie in the file");
    require(tensor.bytes == bytes_of(tensor.type, tensor.shape), "a tensor has the bytes of its shape");
    require(table->find(tensor.name).has_value(), "a tensor is found by its name");
    elements_bytes += tensor.bytes;
  }
  require(elements_bytes < bytes.size(), "tensors do not overlap");
  exercise_layout(table->all());
}

}  // namespace

const Fuzzer kSafetensors("safetensors", exercise_safetensors);

}  // namespace chimera::testing

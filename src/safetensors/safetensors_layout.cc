#include "safetensors/safetensors_layout.h"

#include "core/json.h"
#include "core/reject.h"

namespace chimera {

std::uint64_t bytes_of(ElementType type, const std::vector<std::int64_t>& shape) {
  // In bits, because elements of F4 and F6 share bytes.
  std::uint64_t bits = bits_of(type);
  for (const std::int64_t size : shape) bits *= static_cast<std::uint64_t>(size);
  return bits / 8;
}

SafetensorsLayout lay_out(std::vector<TensorEntry> tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t end = 0;  // end of the data so far, in bytes
  for (TensorEntry& tensor : tensors) {
    tensor.bytes = bytes_of(tensor.type, tensor.shape);
    tensor.begin = end;
    end += tensor.bytes;
    header[tensor.name] = {
        {"dtype", to_text(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, end}}};
  }
  std::string text = json_text(header);
  // Blanks behind the header align the data, as the format recommends.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    reject(
        "{} tensors need a header of {} bytes, and no safetensors file has more than {}; write more and smaller files",
        tensors.size(), text.size(), kMaxHeaderBytes);
  }
  SafetensorsLayout layout;
  for (std::uint64_t length = text.size(), i = 0; i < 8; ++i)
    layout.head += static_cast<char>(length >> (8 * i) & 0xffU);
  // The length before it is little endian, whatever the byte order of this machine.
  layout.head += text;
  // Offsets in the header count from its end; TensorEntry::begin from the start of the file.
  for (TensorEntry& tensor : tensors) tensor.begin += layout.head.size();
  layout.tensors = std::move(tensors);
  layout.file_bytes = layout.head.size() + end;
  return layout;
}

}  // namespace chimera

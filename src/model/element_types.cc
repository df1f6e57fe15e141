#include "model/element_types.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/reject.h"
#include "safetensors/safetensors_file.h"

namespace chimera {
namespace {

constexpr std::pair<ElementType, at::ScalarType> kElementTypes[] = {
    {ElementType::F64, at::kDouble}, {ElementType::F32, at::kFloat}, {ElementType::BF16, at::kBFloat16},
    {ElementType::F16, at::kHalf},   {ElementType::I64, at::kLong},  {ElementType::I32, at::kInt},
    {ElementType::U8, at::kByte},    {ElementType::Bool, at::kBool}};

}  // namespace

at::ScalarType scalar_type(DataType type) {
  switch (type) {
    case DataType::Float32: return at::kFloat;
    case DataType::Float64: return at::kDouble;
    case DataType::BFloat16: return at::kBFloat16;
  }
  return at::kFloat;
}

ElementType element_type(at::ScalarType type) {
  for (const auto& [stored, scalar] : kElementTypes)
    if (scalar == type) return stored;
  throw Error(fmt::format("safetensors files do not hold tensors of {}", c10::toString(type)));
}

at::ScalarType floating_type(ElementType type) {
  for (const auto& [stored, scalar] : kElementTypes)
    if (stored == type && at::isFloatingType(scalar)) return scalar;
  throw Error(to_text(type) + " is not a floating-point type");
}

void for_each_block(std::int64_t elements, const std::function<void(std::int64_t first, std::int64_t count)>& visit) {
  for (std::int64_t first = 0; first < elements; first += kBlockOfElements)
    visit(first, std::min(kBlockOfElements, elements - first));
}

at::Tensor convert(const at::Tensor& values, ElementType type, const std::string& tensor) {
  const at::Tensor result = values.to(at::kCPU, floating_type(type)).contiguous();
  if (type != ElementType::F16 || values.scalar_type() == at::kHalf) return result;
  // bfloat16 has the range of float32; only float16 can overflow. Values that were infinite before stay so.
  const at::Tensor lost = result.isinf().logical_and(values.to(at::kCPU).isfinite());
  if (!lost.any().item<bool>()) return result;
  reject("{}: {:g} is too large for {}; give bfloat16", tensor,
         values.to(at::kCPU).masked_select(lost)[0].item<double>(), to_text(type));
}

void write_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors)
    entries.push_back({.name = name, .type = element_type(tensor.scalar_type()), .shape = tensor.sizes().vec()});
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

#include "engine/stored_values.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "model/element_types.h"

namespace chimera {
namespace {

std::span<std::byte> bytes_in(const at::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.mutable_data_ptr()), contiguous.nbytes()};
}

void read_converted(const WeightFiles::Found& found, const at::Tensor& value) {
  // Only one block of another type is in memory, because a head may have gigabytes.
  const at::Tensor flat = value.view({-1});
  const at::Tensor block = at::empty({std::min(kBlockOfElements, flat.numel())}, floating_type(found.tensor.type));
  for_each_block(flat.numel(), [&](std::int64_t first, std::int64_t count) {
    const at::Tensor part = block.narrow(0, 0, count);
    found.file->read(found.tensor, static_cast<std::uint64_t>(first) * part.element_size(), bytes_in(part));
    flat.narrow(0, first, count).copy_(part);
  });
}

}  // namespace

void read_values(const WeightFiles::Found& found, const at::Tensor& value) {
  if (value.is_cpu() && value.scalar_type() == floating_type(found.tensor.type)) {
    found.file->read(found.tensor, 0, bytes_in(value));
  } else {
    read_converted(found, value);
  }
}

InitialValue values_from_files(FindValues find) {
  return [find = std::move(find)](const ParameterSpec& parameter, const at::TensorOptions& options) {
    at::Tensor value = at::empty(parameter.shape, options);
    read_values(find(parameter), value);
    return value;
  };
}

InitialValue values_from_folder(std::shared_ptr<const ModelFolder> folder) {
  return values_from_files(
      [folder = std::move(folder)](const ParameterSpec& parameter) { return folder->find(parameter); });
}

StandaloneStage::StandaloneStage(const ModelConfig& model, const StageLayers& layers, at::ScalarType dtype,
                                 const InitialValue& value) {
  const TiedUses uses{.embedding = layers.embedding, .head = layers.head};
  if (model.tied && uses.any()) tied = make_tied_weight(model, uses, dtype, value);
  stage = make_stage(model, layers, dtype, value, tied ? tied->leaves() : TiedLeaves{});
}

}  // namespace chimera

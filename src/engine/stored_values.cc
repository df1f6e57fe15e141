#include "engine/stored_values.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>

#include "core/invariant.h"
#include "model/element_types.h"

namespace chimera {
namespace {

std::span<std::byte> bytes_in(const at::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.mutable_data_ptr()), contiguous.nbytes()};
}

/// Reads consecutive elements into `values` (flat), from element `first` on. `block` has the file's type.
void read_run(const WeightFiles::Found& found, std::int64_t first, const at::Tensor& values, const at::Tensor& block) {
  const auto offset = [&](std::int64_t element) {
    return static_cast<std::uint64_t>(element) * c10::elementSize(block.scalar_type());
  };
  // The same type: read straight into the parameter.
  if (values.is_cpu() && values.scalar_type() == block.scalar_type())
    return found.file->read(found.tensor, offset(first), bytes_in(values));
  // Only one block of another type is in memory, because a head may have gigabytes.
  for_each_block(values.numel(), [&](std::int64_t begin, std::int64_t count) {
    const at::Tensor part = block.narrow(0, 0, count);
    found.file->read(found.tensor, offset(first + begin), bytes_in(part));
    values.narrow(0, begin, count).copy_(part);
  });
}

}  // namespace

void read_values(const WeightFiles::Found& found, const std::string& name, const TensorPlace& place,
                 const at::Tensor& value) {
  const at::Tensor flat = value.view({-1});
  const at::Tensor block = at::empty({std::min(kBlockOfElements, flat.numel())}, floating_type(found.tensor.type));
  const auto cut = tensor_cut(name);
  if (!cut || place.ranks == 1) return read_run(found, 0, flat, block);
  // A run for each block of the cut dimension, in each row of the dimensions before it
  const std::vector<std::int64_t>& shape = found.tensor.shape;
  const auto size_of = [](auto begin, auto end) {
    return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
  };
  const auto dimension = shape.begin() + cut->dimension;
  // With shape [out, in] and a cut of `in` (dimension 1): inner = 1, runs = out, and each run is this rank's range of
  // one row. A cut of `out` (dimension 0) is one run of whole rows.
  const std::int64_t inner = size_of(dimension + 1, shape.end());
  const std::int64_t size = *dimension / cut->blocks;
  const std::int64_t runs = size_of(shape.begin(), dimension) * cut->blocks;
  const TensorRange range = place.share_of(size, *cut);
  const std::int64_t length = range.count * inner;
  require_invariant(flat.numel() == runs * length, "a part of a stored tensor has another size");
  for (std::int64_t run = 0; run < runs; ++run)
    read_run(found, (run * size + range.first) * inner, flat.narrow(0, run * length, length), block);
}

InitialValue values_from_files(FindValues find) {
  return [find = std::move(find)](const ParameterSpec& parameter, const at::TensorOptions& options,
                                  const TensorPlace& place) {
    at::Tensor value = at::empty(held_shape(parameter, place), options);
    read_values(find(parameter), parameter.name, place, value);
    return value;
  };
}

InitialValue values_from_folder(std::shared_ptr<const ModelFolder> folder) {
  return values_from_files(
      [folder = std::move(folder)](const ParameterSpec& parameter) { return folder->find(parameter); });
}

// No gradients are needed, but the classes of training also serve here, so that evaluation has the same bits.
StandaloneStage::StandaloneStage(const ModelConfig& model, const StageLayers& layers, at::ScalarType dtype,
                                 const InitialValue& value) {
  const TiedUses uses{.embedding = layers.embedding, .head = layers.head};
  if (model.tied && uses.any()) tied = make_tied_weight(model, uses, dtype, value);
  stage = make_stage(model, layers, dtype, value, tied ? tied->leaves() : TiedLeaves{});
}

}  // namespace chimera

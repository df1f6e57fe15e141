#include "train/loop/batches.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "model/layers.h"

namespace chimera {
namespace {

/// One field of all samples, stacked.
template <class Element>
at::Tensor stacked(const std::vector<Sample>& samples, const std::vector<Element> Sample::*field,
                   at::ScalarType dtype) {
  const auto rows = static_cast<std::int64_t>(samples.size());
  const auto columns = static_cast<std::int64_t>((samples.front().*field).size());
  at::Tensor tensor = at::empty({rows, columns}, dtype);
  Element* next = static_cast<Element*>(tensor.data_ptr());
  for (const Sample& sample : samples) next = std::copy((sample.*field).begin(), (sample.*field).end(), next);
  return tensor;
}

}  // namespace

MicroBatch make_micro_batch(const Samples& samples, Family family, const BatchPlace& place) {
  return make_micro_batch(samples_at(samples, place), family, samples.targets_per_sample(), place.mini_batch);
}

MicroBatch make_micro_batch(const std::vector<Sample>& samples, Family family, std::int64_t targets_per_sample,
                            std::int64_t mini_batch) {
  MicroBatch batch;
  batch.tokens = stacked(samples, &Sample::tokens, at::kLong);
  batch.targets = stacked(samples, &Sample::targets, at::kLong);
  batch.token_loss_scale = 1.0 / static_cast<double>(targets_per_sample * mini_batch);
  batch.sentence_loss_scale = 1.0 / static_cast<double>(mini_batch);
  if (!samples.front().documents.empty()) batch.documents = stacked(samples, &Sample::documents, at::kLong);
  if (!is_causal(family)) {
    batch.target_places = target_places(batch.targets.flatten());
    batch.token_types = stacked(samples, &Sample::token_types, at::kLong);
    const at::Tensor attention = stacked(samples, &Sample::attention, at::kByte).to(at::kBool);
    if (!attention.all().item<bool>()) batch.attention_mask = attention;  // nothing to hide: no mask, a faster kernel
    batch.next_sentence = at::empty({static_cast<std::int64_t>(samples.size())}, at::kLong);
    std::int64_t* next = batch.next_sentence.data_ptr<std::int64_t>();
    for (const Sample& sample : samples) *next++ = sample.next_sentence;
  }
  return batch;
}

MicroBatch ready_for(MicroBatch batch, at::Device device) {
  if (device.is_cpu()) return batch;
  for (at::Tensor* tensor : tensors_of(batch)) *tensor = tensor->pin_memory();
  return batch;
}

MicroBatch on_device(MicroBatch batch, at::Device device) {
  if (device.is_cpu()) return batch;
  for (at::Tensor* tensor : tensors_of(batch)) *tensor = tensor->to(device, /*non_blocking=*/true);
  return batch;
}

}  // namespace chimera

#include "train/loop/loader.h"

#include <ATen/ATen.h>
#include <algorithm>
#include <unordered_set>

#include "core/mapped.h"
#include "model/layers.h"

namespace chimera {
namespace {

/// Returns a row for each sample.
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

MicroBatch make_micro_batch(const Samples& samples, Family family, const BatchPosition& place) {
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
    batch.target_indices = target_indices(batch.targets.flatten());
    batch.token_types = stacked(samples, &Sample::token_types, at::kLong);
    const at::Tensor attention = stacked(samples, &Sample::attention, at::kByte).to(at::kBool);
    if (!attention.all().item<bool>()) batch.attention_mask = attention;  // No padding: no mask, a faster kernel
    batch.next_sentence = at::empty({static_cast<std::int64_t>(samples.size())}, at::kLong);
    std::int64_t* next = batch.next_sentence.data_ptr<std::int64_t>();
    for (const Sample& sample : samples) *next++ = sample.next_sentence;
  }
  return batch;
}

MicroBatch pin_memory(MicroBatch batch, at::Device device) {
  if (device.is_cpu()) return batch;
  // Copies to a GPU run beside other work only from pinned memory.
  for (at::Tensor* tensor : tensors_of(batch)) *tensor = tensor->pin_memory();
  return batch;
}

MicroBatch on_device(MicroBatch batch, at::Device device) {
  if (device.is_cpu()) return batch;
  for (at::Tensor* tensor : tensors_of(batch)) *tensor = tensor->to(device, /*non_blocking=*/true);
  return batch;
}

Loader::Loader(const Job& job, const GroupWorker& place, at::Device device)
    : job_(job),
      place_(place),
      device_(device),
      prefetcher_([this](const BatchPosition& place) { return checked(make(place)); }) {
  // A worker may read a micro-batch for two stages; it is prepared once.
  std::unordered_set<MicroBatchId> seen;
  for (const Op& op : job_.run.schedule.workers[place_.worker.index()]) {
    if (op.kind != OpKind::Forward || !reads_samples(op.stage)) continue;
    if (seen.insert(op.micro_batch).second) micro_batches_.push_back(op.micro_batch);
  }
}

std::shared_ptr<const DealtStep> Loader::dealt(std::int64_t step) const {
  static const auto kInOrder = std::make_shared<const DealtStep>();
  const DataOptions& data = job_.options.data;
  if (data.documents == Documents::Pack || job_.options.schedule.adapt == Adapt::None) return kInOrder;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = dealt_.find(step); found != dealt_.end()) return found->second;
  }
  // Without the lock: the executor must not wait while the thread deals the next step.
  const double attention = attention_share(job_.model, data.sequence);
  const auto length = static_cast<double>(data.sequence);
  std::vector<double> work;
  const std::int64_t samples = job_.run.mini_batch();
  for (std::int64_t i = 0; i < samples; ++i) {
    const double squares =
        job_.data.training->squared_documents_at(job_.options.resume.sample_shift + step * samples + i);
    work.push_back(1 - attention + attention * squares / (length * length));
  }
  auto made = std::make_shared<const DealtStep>(deal_step(job_.run, work, /*permutes=*/!job_.canonical));
  const std::lock_guard lock(mutex_);
  return dealt_.try_emplace(step, std::move(made)).first->second;
}

MicroBatch Loader::make(const BatchPosition& place) const {
  const auto dealt = this->dealt(place.step);
  const std::int64_t first = dealt->first_dealt(place.first, place.size);
  std::vector<Sample> samples;
  for (std::int64_t i = first; i < first + place.size; ++i)
    samples.push_back(job_.data.training->sample_at(place.shift + place.step * place.mini_batch + dealt->sample(i)));
  return make_micro_batch(samples, job_.model.family, job_.data.training->targets_per_sample(), place.mini_batch);
}

void Loader::begin_step(std::int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    dealt_.erase(dealt_.begin(), dealt_.lower_bound(step - 1));
  }
  prefetcher_.forget_before(step - 1);  // An asynchronous schedule may still recompute step - 1
  // So the thread of the prefetcher prepares the next step while this one runs.
  for (const std::int64_t announced : {step, step + 1}) {
    if (announced == job_.options.updates.steps) return;
    prefetcher_.prefetch(mapped(micro_batches_, [&](MicroBatchId id) { return place_of(announced, id); }));
  }
}

/// begin_step() keeps three steps at a time, and validation reads micro-batches beside them. PyTorch caches pinned
/// memory by size.
void Loader::warm_up(std::int64_t step) {
  if (device_.is_cpu()) return;
  constexpr int kMoreSteps = 2;
  std::vector<at::Tensor> more;
  for (const MicroBatchId micro_batch : micro_batches_) {
    if (step + 1 < job_.options.updates.steps) static_cast<void>(prefetcher_.get(place_of(step + 1, micro_batch)));
    MicroBatch batch = prefetcher_.get(place_of(step, micro_batch));
    for (const at::Tensor* tensor : tensors_of(batch))
      for (int i = 0; i < kMoreSteps; ++i)
        more.push_back(at::empty(tensor->sizes(), tensor->options().pinned_memory(true)));
  }
}

MicroBatch Loader::training(std::int64_t step, StageId stage, MicroBatchId micro_batch) {
  MicroBatch batch;
  // Even a stage that reads no samples needs their position, because dropout masks depend on it.
  const BatchPosition place = place_of(step, micro_batch);
  if (reads_samples(stage)) batch = on_device(prefetcher_.get(place), device_);
  batch.dropout = {.probability = job_.options.model.dropout,
                   .seed = static_cast<std::uint64_t>(job_.options.data.seed),
                   .step = step,
                   .first_sample = dealt(step)->first_dealt(place.first, place.size)};
  // Each update uses the mean loss of its own samples. Prefetched micro-batches are scaled for the whole mini-batch,
  // for which an asynchronous step may make several updates.
  batch.token_loss_scale *= static_cast<double>(job_.run.updates());
  batch.sentence_loss_scale *= static_cast<double>(job_.run.updates());
  return batch;
}

MicroBatch Loader::validation(std::int64_t batch, StageId stage, MicroBatchId micro_batch) const {
  if (!reads_samples(stage)) return {};
  const Samples& source = *job_.data.validation;
  BatchPosition place = place_of(batch, micro_batch);
  // The shift is the position of a resumed run in its training data. A validation reads the same windows each time.
  place.shift = 0;
  // All ranks run the whole program, so a short split is filled up with samples whose targets do not count.
  const std::int64_t counted = std::min(source.count(), place.mini_batch);
  std::vector<Sample> samples = samples_at(source, place);
  for (std::int64_t i = std::clamp<std::int64_t>(counted - place.first, 0, place.size); i < place.size; ++i) {
    Sample& again = samples[static_cast<std::size_t>(i)];  // The split has fewer windows than a mini-batch
    std::ranges::fill(again.targets, kIgnoredTarget);
    again.next_sentence = kIgnoredTarget;
  }
  return on_device(checked(make_micro_batch(samples, job_.model.family, source.targets_per_sample(), counted)),
                   device_);
}

/// Returns the micro-batch in pinned memory. A GPU would end the process at a token outside of the vocabulary, without
/// its number.
MicroBatch Loader::checked(MicroBatch batch) const {
  if (device_.is_cpu()) return batch;
  require_below(batch.tokens, job_.model.vocabulary, "token");
  require_below(batch.targets, job_.model.vocabulary, "target");
  return pin_memory(std::move(batch), device_);
}

/// Blocks of causal models read only hidden states, unless attention is limited to documents.
bool Loader::reads_samples(StageId stage) const {
  const bool first_or_last = stage == StageId(0) || stage.value() + 1 == job_.run.schedule.stages;
  return first_or_last || !is_causal(job_.model.family) || job_.options.data.documents == Documents::Split;
}

BatchPosition Loader::place_of(std::int64_t step, MicroBatchId micro_batch) const {
  const std::int64_t first = job_.run.first_sample(place_.group, micro_batch);
  return {step, first, job_.run.samples_per_op(), job_.run.mini_batch(), job_.options.resume.sample_shift};
}

}  // namespace chimera

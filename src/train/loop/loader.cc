#include "train/loop/loader.h"

#include <unordered_set>

#include "train/loop/batches.h"

namespace chimera {

Loader::Loader(const Job& job, const GroupWorker& place, at::Device device)
    : job_(job),
      place_(place),
      device_(device),
      prefetcher_([this](const BatchPlace& at) { return made(*job_.training_samples, at); }) {
  std::unordered_set<MicroBatchId> seen;
  for (const Op& op : job_.schedule.workers[place_.worker.index()]) {
    if (op.kind != OpKind::Forward || !reads_samples(op.stage)) continue;
    if (seen.insert(op.micro_batch).second) micro_batches_.push_back(op.micro_batch);
  }
}

void Loader::begin_step(std::int64_t step) {
  prefetcher_.forget_before(step - 1);  // which an asynchronous schedule may still recompute
  for (const std::int64_t announced : {step, step + 1}) {
    if (announced == job_.options.steps) return;
    std::vector<BatchPlace> places;
    for (const MicroBatchId micro_batch : micro_batches_) places.push_back(place_of(announced, micro_batch));
    prefetcher_.prefetch(places);
  }
}

MicroBatch Loader::training(std::int64_t step, StageId stage, MicroBatchId micro_batch) {
  MicroBatch batch;
  const BatchPlace place = place_of(step, micro_batch);
  if (reads_samples(stage)) batch = on_device(prefetcher_.get(place), device_);
  batch.dropout = {.probability = job_.options.dropout,
                   .seed = static_cast<std::uint64_t>(job_.options.seed),
                   .step = step,
                   .first_sample = place.first};
  // An update by a share of the step's samples is by their mean loss, not by their share of the step's.
  batch.token_loss_scale *= static_cast<double>(job_.updates());
  batch.sentence_loss_scale *= static_cast<double>(job_.updates());
  return batch;
}

MicroBatch Loader::validation(std::int64_t batch, StageId stage, MicroBatchId micro_batch) const {
  if (!reads_samples(stage)) return {};
  return on_device(made(*job_.validation_samples, place_of(batch, micro_batch)), device_);
}

/// Blocks of causal models see hidden states alone, unless attention stays inside documents; those of BERT a mask.
bool Loader::reads_samples(StageId stage) const {
  const bool first_or_last = stage == StageId(0) || stage.value() + 1 == job_.schedule.stages;
  return first_or_last || !is_causal(job_.model.family) || job_.options.documents == Documents::Split;
}

BatchPlace Loader::place_of(std::int64_t step, MicroBatchId micro_batch) const {
  const std::int64_t first = job_.first_sample(place_.group, micro_batch);
  return {step, first, job_.micro_batch_size(), job_.mini_batch()};
}

MicroBatch Loader::made(const Samples& source, const BatchPlace& place) const {
  return ready_for(make_micro_batch(source, job_.model.family, place), device_);
}

}  // namespace chimera

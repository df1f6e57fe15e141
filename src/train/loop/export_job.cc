#include "train/loop/export_job.h"

#include <ATen/ATen.h>

#include "core/files.h"
#include "core/json.h"
#include "engine/stored_values.h"
#include "model/element_types.h"
#include "model/make_stage.h"
#include "model_config/config.h"
#include "train/loop/loader.h"
#include "train/setup/device.h"

// Writes what another implementation needs to repeat a run step by step: the initial weights, the samples of each step
// in the order of training, and the settings with the learning rate of each step. Values that follow from others by
// rules of ours are written out, so that a reader needs to know none of them.

namespace chimera {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

Tensors first_weights(const ModelConfig& model, DataType dtype, const InitialValue& value) {
  // The initial values depend on seed and parameter name alone, so one stage with all layers has those of every layout.
  const StandaloneStage whole(model, even_partition(model.layers, 1).front(), scalar_type(master_type(dtype)), value);
  Tensors weights;
  const auto add = [&](const ParameterGroup& group) {
    for (const Parameter& parameter : group.parameters()) weights[parameter.name] = parameter.value.detach();
  };
  // The stage only refers to a tied matrix, which is a parameter group of its own.
  if (whole.tied) add(*whole.tied);
  add(*whole.stage);
  return weights;
}

Tensors all_batches(const JobShape& job, const Samples& samples, std::int64_t count) {
  std::map<std::string, std::vector<at::Tensor>> steps;
  for (std::int64_t step = 0; step < count; ++step) {
    const MicroBatch batch =
        // One micro-batch as large as the mini-batch. Readers cut it into "micro_batches" parts.
        make_micro_batch(samples, job.model.family, {step, 0, job.run.mini_batch(), job.run.mini_batch()});
    steps["tokens"].push_back(batch.tokens);
    steps["targets"].push_back(batch.targets);
    if (is_causal(job.model.family)) continue;
    steps["token_types"].push_back(batch.token_types);
    steps["next_sentence"].push_back(batch.next_sentence);
  }
  Tensors batches;
  for (const auto& [name, tensors] : steps) batches[name] = at::stack(tensors);
  return batches;
}

std::string settings(const JobShape& job, const TrainOptions& options) {
  const ModelConfig& model = job.model;
  nlohmann::ordered_json sizes = layer_sizes_json(model);
  sizes["layers"] = model.layers;
  nlohmann::ordered_json text = {{"model", sizes},
                                 {"micro_batches", job.run.micro_batches()},
                                 {"micro_batch_size", job.run.samples_per_op()},
                                 {"sequence", options.data.sequence},
                                 {"dtype", to_text(options.numbers.dtype)},
                                 {"optimizer", to_text(options.updates.optimizer.kind)},
                                 {"weight_decay", options.updates.optimizer.weight_decay},
                                 {"decay", to_text(options.updates.optimizer.decayed)},
                                 {"betas", {options.updates.optimizer.beta1, options.updates.optimizer.beta2}},
                                 {"epsilon", options.updates.optimizer.epsilon},
                                 {"clip", options.updates.clip}};
  if (options.updates.optimizer.kind == OptimizerKind::Muon) {
    const MuonOptions& muon = options.updates.optimizer.muon;
    text["momentum"] = muon.momentum;
    text["muon_adjust"] = to_text(muon.adjust);
    text["muon_dtype"] = to_text(muon.iterations.value_or(options.numbers.dtype));
    text["muon_exclude"] = muon.exclude;
  }
  for (std::int64_t step = 0; step < options.updates.steps; ++step)
    text["learning_rates"].push_back(options.updates.learning_rate.at(step, options.updates.steps));
  return json_text(text, 1) + "\n";
}

}  // namespace

void export_job(const Job& job, const std::string& folder) {
  write_safetensors(
      folder + "/weights.safetensors",
      first_weights(job.model, job.options.numbers.dtype, folder_or_random_values(job.from, job.options.data.seed)));
  write_safetensors(folder + "/batches.safetensors", all_batches(job, *job.data.training, job.options.updates.steps));
  write_whole(folder + "/job.json", settings(job, job.options));
}

}  // namespace chimera

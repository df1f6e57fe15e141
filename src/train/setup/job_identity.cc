#include "train/setup/run_record.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include "core/json.h"
#include "model_config/config.h"
#include "train/setup/device.h"
#include "train/setup/job_fingerprint.h"

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

Json model_section(const Job& job) {
  Json section = layer_sizes_json(job.model);
  section["layers"] = job.model.layers;
  return section;
}

Json data_section(const Job& job) {
  const TrainOptions& o = job.options;
  return {{"content", fmt::format("{:016x}", data_hash(job))},
          {"documents", to_text(o.documents)},
          {"end_of_document", o.end_of_document},
          {"sequence", o.sequence},
          {"mini_batch", job.run.mini_batch()},
          {"seed", o.seed}};
}

Json hyperparameters(const Job& job) {
  const TrainOptions& o = job.options;
  const LearningRate& rate = o.learning_rate;
  Json section = {{"steps", o.steps},
                  {"learning_rate", rate.peak},
                  {"min_learning_rate", rate.minimum ? Json(*rate.minimum) : Json()},
                  {"learning_rate_shape", to_text(rate.shape)},
                  {"warmup", rate.warmup},
                  {"cooldown", rate.cooldown ? Json(*rate.cooldown) : Json()},
                  {"cooldown_shape", to_text(rate.cooldown_shape)},
                  {"weight_decay", o.optimizer.weight_decay},
                  {"decay", to_text(o.optimizer.decayed)},
                  {"beta1", o.optimizer.beta1},
                  {"beta2", o.optimizer.beta2},
                  {"epsilon", o.optimizer.epsilon},
                  {"clip", o.clip},
                  {"dropout", o.dropout},
                  {"dtype", to_text(o.dtype)},
                  {"reduction", to_text(o.reduction)}};
  if (job.canonical) section["block_size"] = job.canonical->block_size;
  if (job.canonical) section["micro_batch_size"] = job.run.samples_per_op();
  return section;
}

Json layout_section(const Job& job) {
  const TrainOptions& o = job.options;
  std::vector<std::int64_t> layers;
  for (const StageLayers& stage : job.partition) layers.push_back(stage.end_layer - stage.first_layer);
  return {{"schedule", job.run.schedule.name},
          {"stages", job.run.schedule.stages},
          {"pipelines", job.run.schedule.placement.num_replicas()},
          {"micro_batches", job.run.schedule.micro_batches},
          {"micro_batch_size", job.run.samples_per_op()},
          {"data_parallel", job.run.ranks.data_parallel},
          {"ranks", job.run.num_ranks()},
          {"partition", layers},
          {"transport", to_text(o.transport)},
          {"device", to_text(o.device)},
          {"shard_optimizer", o.shard_optimizer},
          {"threads", intra_op_threads(job)}};
}

void compare(const std::string& name, const Json& there, const Json& here, std::vector<std::string>& differing) {
  const auto value = [](const Json& section, const std::string& key) {
    return section.is_object() && section.contains(key) ? json_text(section[key]) : std::string("nothing");
  };
  Json all = here;
  if (there.is_object()) all.update(there);
  for (const auto& [key, any] : all.items()) {
    const std::string then = value(there, key);
    const std::string now = value(here, key);
    if (then != now)
      differing.push_back(fmt::format("{}.{}: {} in the saved run, {} in this run", name, key, then, now));
  }
}

}  // namespace

Json run_record(const Job& job) {
  return {{"model", model_section(job)},
          {"optimizer", {{"kind", to_text(job.options.optimizer.kind)}}},
          {"data", data_section(job)},
          {"hyperparameters", hyperparameters(job)},
          {"layout", layout_section(job)},
          {"tokenizer", job.data.tokenizer},
          {"versions", {{"libtorch", TORCH_VERSION}, {"cpu", at::get_cpu_capability()}}}};
}

RunDifferences differences(const Json& there, const Json& here) {
  const auto section = [](const Json& record, const char* name) {
    return record.contains(name) ? record[name] : Json::object();
  };
  RunDifferences found;
  const auto add = [&](const char* name, std::vector<std::string>& differing) {
    compare(name, section(there, name), section(here, name), differing);
  };
  add("model", found.model);
  add("optimizer", found.model);
  add("data", found.data);
  add("hyperparameters", found.other);
  add("versions", found.other);
  return found;
}

}  // namespace chimera

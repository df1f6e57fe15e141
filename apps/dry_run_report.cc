#include "dry_run_report.h"

#include <fmt/ranges.h>
#include <algorithm>

#include "core/counted.h"
#include "core/json.h"
#include "core/mapped.h"
#include "core/printable.h"
#include "launch/hosts/run_layout.h"
#include "model_config/parameters.h"
#include "train/observe/progress_report.h"

namespace chimera::apps {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::int64_t> ranks_with(const Forecast& forecast, StageId stage) {
  std::vector<std::int64_t> ranks;
  for (const RankForecast& rank : forecast.ranks)
    if (std::ranges::count(rank.stages, stage, &HeldStage::stage) > 0) ranks.push_back(rank.rank.value());
  return ranks;
}

std::string stages_text(const RankForecast& rank) {
  return fmt::format("{}", fmt::join(numbers_of_ids(mapped(rank.stages, &HeldStage::stage)), ", "));
}

Json stage_json(const Job& job, const Forecast& forecast, std::size_t s) {
  const StageLayers& layers = job.partition[s];
  return {{"stage", s},
          {"first_layer", layers.first_layer},
          {"layers", layers.blocks()},
          {"embedding", layers.embedding},
          {"head", layers.head},
          {"parameters", parameter_count(job.model, job.partition[s])},
          {"ranks", ranks_with(forecast, StageId(static_cast<std::int64_t>(s)))}};
}

/// `tensor` is t, the place among the ranks of the worker.
Json rank_json(const Forecast& forecast, const RankForecast& rank, std::int64_t tensor) {
  const auto stages = mapped(rank.stages, [](const HeldStage& held) {
    return Json{{"replica", held.replica.value()}, {"stage", held.stage.value()}};
  });
  return {{"rank", rank.rank.value()},
          {"group", rank.place.group.value()},
          {"worker", rank.place.worker.value()},
          {"tensor", tensor},
          {"stages", stages},
          {"parameters", rank.parameters},
          {"weights_bytes", rank.weights_bytes},
          {"gradients_bytes", rank.gradients_bytes},
          {"optimizer_bytes", rank.optimizer_bytes},
          {"peak_memory_bytes", rank.peak_memory_bytes},
          {"compute_seconds", rank.compute_seconds},
          {"bubble_ratio", rank.bubble_ratio},
          {"step_seconds", forecast.step_seconds}};
}

/// Ranks wait for a free core. This time counts as idle. `chimera simulate` assumes a core for each worker, so its
/// bubble ratio of the same schedule is lower.
std::string shared_cores_text(const Job& job, const Forecast& forecast) {
  if (forecast.shared_cores == 0) return "";
  return fmt::format(" ({} ranks on {})", job.num_ranks(), counted(forecast.shared_cores, "core"));
}

/// W x D, or W x T x D.
std::string layout_text(const Job& job) {
  const std::string tensor =
      job.options.parallel.tensor_parallel == 1 ? "" : fmt::format(" x {}", job.options.parallel.tensor_parallel);
  return fmt::format("{}{} x {}", job.run.ranks.data_parallel, tensor, job.run.ranks.workers);
}

std::string gpu_text(const Job& job, const GpuResources& gpus) {
  const auto& [gpu, count, blocks] = gpus;
  return fmt::format(
      "\nGPU: {}, {} multiprocessors\n"
      "a rank has {} communicators at most, of {}: {} for messages, {} for sums, 1 for all ranks\n"
      "  while they wait, they hold {} multiprocessors at most, of {}: {} each for messages, {} for sums, {}{} for all "
      "ranks\n"
      "  each has a high-priority stream; {} receive per channel is posted ahead\n",
      gpu.name, gpu.multiprocessors, count.all(), kMaxCommunicators, count.of_pairs, count.of_groups,
      blocks.held(count), gpu.multiprocessors / 2, blocks.pair, blocks.group,
      count.of_ops > 0 ? fmt::format("{} for sums inside ops, ", blocks.op) : "", blocks.everyone,
      receives_ahead(job.options));
}

Json gpu_json(const Job& job, const GpuResources& gpus) {
  const auto& [gpu, count, blocks] = gpus;
  return {{"name", gpu.name},
          {"multiprocessors", gpu.multiprocessors},
          {"communicators", count.all()},
          {"message_communicators", count.of_pairs},
          {"sum_communicators", count.of_groups},
          {"most_communicators", kMaxCommunicators},
          {"held_multiprocessors", blocks.held(count)},
          {"most_held_multiprocessors", gpu.multiprocessors / 2},
          {"receives_ahead", receives_ahead(job.options)}};
}

}  // namespace

std::string dry_run_text(const Job& job, const Forecast& forecast, const std::optional<GpuResources>& gpus) {
  const auto tokens = static_cast<double>(job.run.mini_batch() * job.options.data.sequence);
  std::string text = fmt::format(
      "dry run, nothing is started: {}, {} parameters\n"
      "schedule {}: {} on {} ({}), {} of {} x {} tokens a step\n{}"
      "predicted: {:.4g} s a step, {:.4g} tokens/s, bubble ratio {:.2f}{}; a rank takes {} at most, of {}{}\n"
      "  for {}\n",
      job.model.name, parameter_count(job.model), job.run.schedule.name, counted(job.run.schedule.stages, "stage"),
      counted(job.num_ranks(), "rank"), layout_text(job), counted(job.run.micro_batches(), "micro-batch"),
      job.run.samples_per_op(), job.options.data.sequence, schedule_line(job.runner_up), forecast.step_seconds,
      tokens / forecast.step_seconds, forecast.bubble_ratio, shared_cores_text(job, forecast),
      bytes_text(forecast.peak_bytes()), bytes_text(forecast.memory_bytes), forecast.fits() ? "" : ": DOES NOT FIT",
      forecast.machine);
  if (forecast.reserved.all() > 0) text += fmt::format("of that, {}\n", to_text(forecast.reserved));
  text += learning_rate_line(job.options) + partition_line(job, job.options.schedule.partition.rule) + "\n";
  std::size_t width = 6;
  for (const RankForecast& rank : forecast.ranks) width = std::max(width, stages_text(rank).size());
  text += fmt::format("{:>5} {:>5} {:>6}  {:<{}} {:>14} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7}\n", "rank", "group",
                      "worker", "stages", width, "parameters", "weights", "gradients", "optimizer", "peak", "computes",
                      "bubble");
  for (const RankForecast& rank : forecast.ranks) {
    text += fmt::format("{:>5} {:>5} {:>6}  {:<{}} {:>14} {:>10} {:>10} {:>10} {:>10} {:>8.4g} s {:>7.2f}\n",
                        rank.rank.value(), rank.place.group.value(), rank.place.worker.value(), stages_text(rank),
                        width, rank.parameters, bytes_text(rank.weights_bytes), bytes_text(rank.gradients_bytes),
                        bytes_text(rank.optimizer_bytes), bytes_text(rank.peak_memory_bytes), rank.compute_seconds,
                        rank.bubble_ratio);
  }
  text += fmt::format("\n{:>5}  {:<22} {:>14}  {}\n", "stage", "layers", "parameters", "on ranks");
  for (std::size_t s = 0; s < job.partition.size(); ++s) {
    const StageLayers& layers = job.partition[s];
    const std::string blocks = fmt::format("{}{} to {}{}", layers.embedding ? "embedding, " : "", layers.first_layer,
                                           layers.end_layer - 1, layers.head ? ", head" : "");
    text += fmt::format("{:>5}  {:<22} {:>14}  {}\n", s, blocks, parameter_count(job.model, job.partition[s]),
                        fmt::join(ranks_with(forecast, StageId(static_cast<std::int64_t>(s))), ", "));
  }
  return gpus ? text + gpu_text(job, *gpus) : text;
}

std::string dry_run_json(const Job& job, const Forecast& forecast, const std::optional<GpuResources>& gpus) {
  Json json = {
      {"model", job.model.name}, {"parameters", parameter_count(job.model)}, {"schedule", job.run.schedule.name}};
  if (job.runner_up) {
    const auto& [schedule, time, memory] = *job.runner_up;
    json["runner_up"] = {{"schedule", schedule}, {"more_time", time}, {"more_memory", memory}};
  }
  json.update(layout_json({.workers = job.run.ranks.workers,
                           .data_parallel = job.run.ranks.data_parallel,
                           .tensor_parallel = job.options.parallel.tensor_parallel,
                           .micro_batches = job.run.schedule.micro_batches,
                           .mini_batch = job.run.mini_batch()}));
  json.update(Json{{"micro_batch_size", job.run.samples_per_op()},
                   {"sequence", job.options.data.sequence},
                   {"machine", forecast.machine},
                   {"step_seconds", forecast.step_seconds},
                   {"bubble_ratio", forecast.bubble_ratio},
                   {"shared_cores", forecast.shared_cores},
                   {"peak_memory_bytes", forecast.peak_bytes()},
                   {"memory_bytes", forecast.memory_bytes},
                   {"reserved_bytes", forecast.reserved.all()},
                   {"fits", forecast.fits()},
                   {"stages", Json::array()},
                   {"ranks", Json::array()}});
  for (std::size_t s = 0; s < job.partition.size(); ++s) json["stages"].push_back(stage_json(job, forecast, s));
  for (const RankForecast& rank : forecast.ranks)
    json["ranks"].push_back(rank_json(forecast, rank, job.ranks().place(rank.rank).rank));
  if (gpus) json["gpu"] = gpu_json(job, *gpus);
  return json_report(json);
}

}  // namespace chimera::apps

#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include "train/setup/job_fingerprint.h"

#include <ATen/Version.h>
#include <xxhash.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string_view>
#include <type_traits>

#include "core/console.h"
#include "core/json.h"
#include "core/printable.h"
#include "data/data_file.h"
#include "hugging_face/model_folder.h"
#include "launch/local/rank.h"
#include "model_config/config.h"
#include "model_config/parameters.h"

namespace chimera {
namespace {

class Hash {
 public:
  Hash() { XXH3_64bits_reset(&state_); }
  template <class Number>
  requires std::is_arithmetic_v<Number> || std::is_enum_v<Number> Hash& add(Number value) {
    XXH3_64bits_update(&state_, &value, sizeof value);
    return *this;
  }
  Hash& add(std::string_view text) {
    add(text.size());
    XXH3_64bits_update(&state_, text.data(), text.size());
    return *this;
  }
  [[nodiscard]] std::uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

template <class... Values>
std::uint64_t hash_of(const Values&... values) {
  Hash hash;
  (hash.add(values), ...);
  return hash.value();
}

/// Omits this machine's CPU capability.
std::string torch_build() {
  std::istringstream config(at::show_config());
  std::string build;
  for (std::string line; std::getline(config, line);) {
    if (line.find("CPU capability") == std::string::npos) build += line + "\n";
  }
  return build;
}

std::uint64_t hash_build() {
  Hash hash;
  hash.add(torch_build());
  std::ifstream program("/proc/self/exe", std::ios::binary);
  std::string block(1 << 20, '\0');
  while (program.read(block.data(), static_cast<std::streamsize>(block.size())) || program.gcount() > 0) {
    hash.add(std::string_view(block).substr(0, static_cast<std::size_t>(program.gcount())));
  }
  return hash.value();
}

std::uint64_t hash_partition(const Job& job) {
  Hash hash;
  for (const StageLayers& stage : job.partition) hash.add(stage.end_layer);
  return hash.value();
}

std::uint64_t hash_model(const Job& job) {
  const ModelConfig& model = job.model;
  Hash hash;
  hash.add(json_text(layer_sizes_json(model))).add(job.partition.size());
  for (const StageLayers& stage : job.partition) {
    for (const ParameterSpec& parameter : stage_parameters(model, stage)) {
      hash.add(parameter.name).add(parameter.initial.kind).add(parameter.initial.standard_deviation);
      for (const std::int64_t size : parameter.shape) hash.add(size);
    }
  }
  return hash.value();
}

void add_program(Hash& hash, const Program& program) {
  for (const auto& worker : program.workers) {
    hash.add(worker.size());
    for (const auto& [kind, op, peer, group, step] : worker) {
      hash.add(kind).add(op.kind).add(op.replica.value()).add(op.stage.value()).add(op.micro_batch.value());
      hash.add(op.weight_version).add(peer.value()).add(group.value()).add(step);
      if (program.slices > 1) hash.add(op.slice);
    }
  }
}

std::uint64_t hash_left_out(const Job& job) {
  Hash hash;
  hash.add(job.options.spike).add(job.options.spike_skip);
  for (const LeftOutSteps& steps : job.left_out) hash.add(steps.first).add(steps.last);
  return hash.value();
}

std::uint64_t hash_programs(const Job& job) {
  Hash hash;
  hash.add(job.run.ranks.workers).add(job.run.ranks.data_parallel).add(job.run.ranks.replicas);
  add_program(hash, job.programs.training);
  add_program(hash, job.programs.validation);
  for (const auto& [steps, run] : job.programs.runs) add_program(hash, run.program);
  for (const auto& group : job.run.rank_groups()) {
    hash.add(group.size());
    for (const RankId rank : group) hash.add(rank.value());
  }
  for (const std::int64_t position : job.run.data_position) hash.add(position);
  for (const std::int64_t bound : job.slice_bounds) hash.add(bound);
  return hash.value();
}

/// Hashes config.json and some bytes of every tensor, which differ between trained models.
std::uint64_t hash_folder(const ModelFolder& folder) {
  Hash hash;
  hash.add(folder.config_json());
  std::array<std::byte, 256> some{};
  for (const ParameterSpec& parameter : all_parameters(folder.model())) {
    const WeightFiles::Found found = folder.find(parameter);
    const std::span<std::byte> bytes = std::span(some).first(std::min<std::size_t>(some.size(), found.tensor.bytes));
    found.file->read(found.tensor, (found.tensor.bytes - bytes.size()) / 2, bytes);
    hash.add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  return hash.value();
}

/// Prevents a hang report while the disk is slow.
void note_slow_disk(std::int64_t /*bytes*/) { note_progress({RankProgress::Phase::StartUp}); }

/// Says every few seconds how much of a large file has been read.
class HashProgress {
 public:
  explicit HashProgress(const DataFile& file) : file_(file) {}

  void operator()(std::int64_t bytes) {
    note_slow_disk(bytes);
    constexpr std::chrono::seconds kInterval(5);
    if (std::chrono::steady_clock::now() - written_ < kInterval) return;
    written_ = std::chrono::steady_clock::now();
    messages().write(fmt::format("chimera: reading {} once, so that a changed file is recognized: {} of {}\n",
                                 file_.path(), bytes_text(static_cast<double>(bytes)),
                                 bytes_text(static_cast<double>(file_.size()))));
  }

 private:
  const DataFile& file_;
  std::chrono::steady_clock::time_point written_ = std::chrono::steady_clock::now();
};

}  // namespace

std::uint64_t data_hash(const Job& job) {
  Hash hash;
  for (const Split split : {Split::Train, Split::Validation}) {
    for (const TokenView& source : job.data.corpus->split(split).sources) hash.add(source.size());
    for (const std::int64_t share : job.data.corpus->split(split).mixture.shares()) hash.add(share);
  }
  for (const DataFile* file : job.data.corpus->opened.files) {
    hash.add(content_hash(*file, default_hash_cache(), note_slow_disk));
  }
  return hash.value();
}

void hash_large_data(const Job& job) {
  const HashCache cache = default_hash_cache();
  for (const DataFile* file : job.data.corpus->opened.files) {
    if (file->size() >= cache.least_bytes && file->state().links > 0)
      static_cast<void>(content_hash(*file, cache, HashProgress(*file)));
  }
}

Fingerprint fingerprint(const Job& job) {
  const TrainOptions& o = job.options;
  return {
      {"the build", hash_build()},
      {"the model", hash_model(job)},
      {"--from", job.from ? hash_folder(*job.from) : 0},
      {"--partition", hash_partition(job)},
      {"the data", data_hash(job)},
      {"--seed", hash_of(o.seed)},
      {"--dtype", hash_of(o.dtype)},
      {"--device, --tf32, --cuda-graphs", hash_of(o.device, o.tf32, o.cuda_graphs)},
      {"--micro-batch-size", hash_of(job.run.samples_per_op())},
      {"--sequence", hash_of(o.sequence)},
      {"--steps", hash_of(o.steps)},
      {"--optimizer", hash_of(o.optimizer.kind)},
      {"--shard-optimizer", hash_of(o.shard_optimizer)},
      {"--learning-rate", hash_of(o.learning_rate.peak)},
      {"--min-learning-rate", hash_of(o.learning_rate.minimum.value_or(-1))},
      {"--learning-rate-shape", hash_of(o.learning_rate.shape)},
      {"--warmup", hash_of(o.learning_rate.warmup)},
      {"--cooldown, --cooldown-shape", hash_of(o.learning_rate.cooldown.value_or(-1), o.learning_rate.cooldown_shape)},
      {"--weight-decay", hash_of(o.optimizer.weight_decay)},
      {"--decay", hash_of(o.optimizer.decayed)},
      {"--beta1, --beta2, --epsilon", hash_of(o.optimizer.beta1, o.optimizer.beta2, o.optimizer.epsilon)},
      {"--clip", hash_of(o.clip)},
      {"--dropout", hash_of(o.dropout)},
      {"--reduction", hash_of(o.reduction)},
      {"--reduction-blocks", hash_of(o.reduction_blocks)},
      {"--documents", hash_of(o.documents, o.end_of_document)},
      {"--spike, --spike-skip", hash_left_out(job)},
      {"--verify-messages", hash_of(o.verify_messages)},
      {"--on-different-copies", hash_of(o.different_copies)},
      {"--validate-every", hash_of(o.validate_every)},
      {"--validate-batches", hash_of(o.validate_batches)},
      {"--sample-every, --prompt", hash_of(o.sample_every, std::string_view(o.prompt))},
      {"--trace, --op-times, --timeline", hash_of(o.observes())},
      {"--report-stragglers", hash_of(o.report_stragglers)},
      {"--export", hash_of(std::string_view(o.export_folder), std::string_view(o.export_dtype), o.export_shard_bytes)},
      {"--checkpoint, --save-every, --keep",
       hash_of(std::string_view(o.checkpoint.folder), o.checkpoint.every.steps, o.checkpoint.every.seconds,
               o.checkpoint.keep.last, o.checkpoint.keep.every)},
      {kResumeFlag, hash_of(std::string_view(o.resume.from), job.first_step)},
      {"the program", hash_programs(job)}};
}

}  // namespace chimera

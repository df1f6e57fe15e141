#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include "train/setup/job_identity.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <type_traits>

#include "core/json.h"
#include "core/mapped.h"
#include "data/data_file.h"
#include "hugging_face/model_folder.h"
#include "launch/local/rank.h"
#include "model_config/config.h"
#include "model_config/parameters.h"
#include "schedule/schedule_json.h"
#include "train/setup/data_tokenizer.h"
#include "train/setup/device.h"
#include "train/setup/option_table.h"

// Two descriptions of a job. fingerprint() has a hash for everything that all ranks must have in common, and is
// compared when they connect. run_record() is written into checkpoints, as values that a message can show, and
// differences() compares it when a run resumes: model and data must be the same, other differences are only reported.

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

class Hash {
 public:
  Hash() { XXH3_64bits_reset(&state_); }
  template <class Number>
  // All ranks run on machines of one byte order: the executable is hashed too.
  requires std::is_arithmetic_v<Number> || std::is_enum_v<Number> Hash& add(Number value) {
    XXH3_64bits_update(&state_, &value, sizeof value);
    return *this;
  }
  Hash& add(std::string_view text) {
    // The length first, so that "ab", "c" and "a", "bc" have different hashes.
    add(text.size());
    XXH3_64bits_update(&state_, text.data(), text.size());
    return *this;
  }
  [[nodiscard]] std::uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

/// Omits this machine's CPU capability.
std::string torch_build() {
  std::istringstream config(at::show_config());
  std::string build;
  for (std::string line; std::getline(config, line);) {
    // Hosts of a cluster may have different CPUs, which may train together.
    if (line.find("CPU capability") == std::string::npos) build += line + "\n";
  }
  return build;
}

std::uint64_t hash_build() {
  Hash hash;
  hash.add(torch_build());
  // Two builds of one version may still differ, so the executable itself is hashed.
  std::ifstream program("/proc/self/exe", std::ios::binary);
  std::string block(1 << 20, '\0');
  while (program.read(block.data(), static_cast<std::streamsize>(block.size())) || program.gcount() > 0)
    hash.add(std::string_view(block).substr(0, static_cast<std::size_t>(program.gcount())));
  return hash.value();
}

std::uint64_t hash_model(const JobShape& job) {
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

std::uint64_t hash_programs(const JobShape& job) {
  Hash hash;
  hash.add(job.run.ranks.workers).add(job.run.ranks.data_parallel).add(job.run.ranks.replicas);
  add_program(hash, job.programs.training);
  add_program(hash, job.programs.validation);
  for (const auto& [steps, run] : job.programs.runs) add_program(hash, run.program);
  for (const auto& group : job.rank_groups()) {
    hash.add(group.size());
    for (const RankId rank : group) hash.add(rank.value());
  }
  // Which rank reads which samples is no part of a program.
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
    // Reading all weights would take minutes at each start. Trained models differ in every tensor, so a few bytes tell
    // them apart.
    found.file->read(found.tensor, (found.tensor.bytes - bytes.size()) / 2, bytes);
    hash.add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  return hash.value();
}

constexpr std::int64_t kHashedWhole = std::int64_t{64} << 20;  // Of more data, as many bytes are samples
// Keys of the data's hash, if it is of all bytes, and if it is of samples.
constexpr const char* kContent = "content";
constexpr const char* kSampledContent = "sampled_content";

std::int64_t bytes_of_data(const Corpus& corpus) {
  std::int64_t bytes = 0;
  for (const DataFile* file : corpus.opened.files) bytes += file->size();
  return bytes;
}

/// Returns the XXH3 hash of mixture shares and of all data files (content_hash()).
std::uint64_t data_hash(const Corpus& corpus) {
  Hash hash;
  for (const Split split : {Split::Train, Split::Validation}) {
    for (const TokenView& source : corpus.split(split).sources) hash.add(source.size());
    for (const std::int64_t share : corpus.split(split).mixture.shares()) hash.add(share);
  }
  // 40 GB take a minute to read, 64 MiB a tenth of a second. Samples are shared out by size.
  const std::int64_t bytes = bytes_of_data(corpus);
  for (const DataFile* file : corpus.opened.files) {
    // Each file gets at least one sample, so that a change of a small file shows as well. 0 means all bytes.
    const std::int64_t samples = bytes > kHashedWhole ? 1 + file->size() / (bytes / (kHashedWhole / kHashedBlock)) : 0;
    // A slow disk is no hang.
    hash.add(content_hash(*file, samples, [] { note_progress({RankProgress::Phase::StartUp}); }));
  }
  return hash.value();
}

Json data_section(const Corpus& corpus, const DataOptions& data, std::int64_t mini_batch) {
  return {
      {bytes_of_data(corpus) > kHashedWhole ? kSampledContent : kContent, fmt::format("{:016x}", data_hash(corpus))},
      {"documents", to_text(data.documents)},
      {"end_of_document", data.end_of_document},
      {"sequence", data.sequence},
      {"mini_batch", mini_batch},
      {"seed", data.seed}};
}

Json layout_section(const JobShape& job, const TrainOptions& o) {
  return {{"schedule", job.run.schedule.name},
          {"stages", job.run.schedule.stages},
          {"pipelines", job.run.schedule.placement.num_replicas()},
          {"micro_batches", job.run.schedule.micro_batches},
          {"micro_batch_size", job.run.samples_per_op()},
          {"data_parallel", job.run.ranks.data_parallel},
          {"tensor_parallel", job.tensor_parallel},
          {"ranks", job.num_ranks()},
          {"partition", mapped(job.partition, &StageLayers::blocks)},
          {"transport", to_text(o.device.transport)},
          {"device", to_text(o.device.kind)},
          {"shard_optimizer", o.memory.shard_optimizer},
          {"threads", intra_op_threads(o, job.local_ranks())}};
}

void compare(const std::string& name, const Json& there, const Json& here, std::vector<std::string>& differing) {
  const auto value = [](const Json& section, const std::string& key) {
    return section.contains(key) ? json_text(section[key]) : std::string("nothing");
  };
  // Keys of either side count: an older checkpoint may lack some, a newer one may have more.
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

Fingerprint fingerprint(const Job& job) {
  const TrainOptions& o = job.options;
  const auto hash_of = [](const Json& value) { return Hash().add(json_text(value)).value(); };
  // The order decides which difference is named first, so the causes come before their consequences: the program
  // depends on almost every flag.
  Fingerprint parts = {{"the build", hash_build()},
                       {"the model", hash_model(job)},
                       {"--from", job.from ? hash_folder(*job.from) : 0},
                       {"--partition", hash_of(mapped(job.partition, &StageLayers::end_layer))},
                       {"the data", data_hash(*job.data.corpus)},
                       {"--tensor-parallel", hash_of({job.tensor_parallel, job.cuts_tokens})}};
  for (const Option& option : declared_values(o))
    if (option.has(kEqual)) parts.push_back({option.flag, hash_of(option.value)});
  parts.push_back({"the steps that --spike leaves out", hash_of(job.left_out)});
  parts.push_back({"--trace, --op-times, --timeline", hash_of(o.output.observes())});
  parts.push_back({kResumeFlag, hash_of({o.resume.from, job.first_step, job.order ? to_json(*job.order) : ""})});
  parts.push_back({"the program", hash_programs(job)});
  return parts;
}

Json run_record(const Job& job) {
  Json model = layer_sizes_json(job.model);
  model["layers"] = job.model.layers;
  Json numbers = Json::object();
  for (const Option& option : declared_values(job.options))
    if (option.has(kRecorded)) numbers[option.key()] = option.value;
  if (job.canonical) numbers["block_size"] = job.canonical->block_size;
  if (job.canonical) numbers["micro_batch_size"] = job.run.samples_per_op();
  return {{"model", model},
          {"optimizer", {{"kind", to_text(job.options.updates.optimizer.kind)}}},
          {"data", data_section(*job.data.corpus, job.options.data, job.run.mini_batch())},
          {"hyperparameters", numbers},
          {"layout", layout_section(job, job.options)},
          {"tokenizer", tokenizer_record(job.data.tokenizer, job.data.tokenizer_texts)},
          {"versions", {{"libtorch", TORCH_VERSION}, {"cpu", at::get_cpu_capability()}}}};
}

RunDifferences differences(const Json& there, const Json& here) {
  const Json none = Json::object();
  RunDifferences found;
  const auto add = [&](const char* name, std::vector<std::string>& differing) {
    compare(name, there.value(name, none), here.value(name, none), differing);
  };
  add("model", found.model);
  // Another kind of optimizer cannot use the saved state, so it counts like another model.
  add("optimizer", found.model);
  Json data = here.value("data", none);
  Json saved_data = there.value("data", none);
  // Older versions hashed all bytes of large files too, which takes a minute for 40 GB.
  if (saved_data.contains(kContent) && data.contains(kSampledContent)) {
    saved_data.erase(kContent);
    data.erase(kSampledContent);
    found.other.emplace_back("data.content: not compared, because an older version hashed all bytes of the data");
  }
  compare("data", saved_data, data, found.data);
  add("hyperparameters", found.other);
  add("versions", found.other);
  return found;
}

}  // namespace chimera

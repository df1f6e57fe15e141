#include "train/loop/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "core/cgroup.h"
#include "core/clock.h"
#include "core/console.h"
#include "core/reject.h"
#include "data/corpus.h"
#include "engine/stored_values.h"
#include "model_config/parameters.h"
#include "train/loop/loader.h"
#include "train/setup/data_tokenizer.h"
#include "train/setup/device.h"
#include "train/setup/options.h"

// `chimera evaluate`: the mean loss of all windows of a text, in their order, with the weights of a model folder. One
// process holds the whole model in one stage and computes forwards only, so neither schedule nor transport nor
// optimizer exists here. What can be refused is refused before the weights are read, because reading takes long.

namespace chimera {
namespace {

/// All windows have the same number of targets. So the mean over windows is the mean over targets, and a last
/// micro-batch of fewer windows has its due weight.
double mean_loss(const EvaluationOptions& options, const Samples& samples, Family family, Stage& stage,
                 const std::function<void(const EvaluationProgress&)>& progress) {
  const at::NoGradGuard no_graph;
  const double start = monotonic_seconds();
  double sum = 0;
  EvaluationProgress now{.windows = samples.ordered_count()};
  while (now.windows_done < now.windows) {
    const std::int64_t first = now.windows_done;
    const std::int64_t end = std::min(first + options.micro_batch_size, now.windows);
    // With a mini-batch of 1, the loss is a sum over the windows. It is divided once, by the windows of all
    // micro-batches.
    std::vector<Sample> windows;
    for (std::int64_t i = first; i < end; ++i) windows.push_back(samples.ordered_sample(i));
    const MicroBatch batch = make_micro_batch(windows, family, samples.targets_per_sample(), /*mini_batch=*/1);
    const double loss = stage.forward({}, batch).item<double>();
    if (!std::isfinite(loss)) {
      throw Error(fmt::format(
          "the loss of windows {} to {} is {}; {} may hold weights that are not finite, or too large for the --dtype",
          first, end - 1, loss, options.from));
    }
    sum += loss;
    now.windows_done = end;
    now.loss = sum / static_cast<double>(end);
    now.tokens_done = end * options.sequence;
    now.seconds = monotonic_seconds() - start;
    progress(now);
  }
  return now.loss;
}

/// Includes narrow copies.
double weight_bytes(const ModelConfig& model, DataType dtype) {
  // bfloat16 weights are copies of float32 ones, and both exist: 4 + 2 bytes a parameter.
  const std::int64_t copies = master_type(dtype) == dtype ? 0 : bytes_of(dtype);
  return static_cast<double>(parameter_count(model)) * static_cast<double>(bytes_of(master_type(dtype)) + copies);
}

}  // namespace

Evaluation evaluate(const EvaluationOptions& options, const std::function<void(const EvaluationProgress&)>& progress) {
  if (!options.force_bfloat16) require_fast_numbers(options.dtype, has_native_bfloat16());
  if (options.force_bfloat16 && options.dtype != DataType::BFloat16)
    reject("--force-bfloat16 is for --dtype bfloat16; give that too, or leave it out");
  const auto folder = std::make_shared<const ModelFolder>(options.from);
  const ModelConfig& model = folder->model();
  if (options.seed != EvaluationOptions().seed && model.family != Family::Bert)
    reject("--seed is for the pairs and masks of BERT; leave it out");
  require_fitting_batch(model, options.sequence, options.micro_batch_size);
  require_memory_for(model, "weights", weight_bytes(model, options.dtype));
  const DataTokenizer tokenizer(options.tokenizer, folder.get(), model);
  const WholeSource source = open_whole_source(options.data, tokenizer.token_options());
  for (const std::string& line : source.opened.ignored_files_note) print_message(line);
  SampleOptions sample_options = tokenizer.sample_options(source.opened.is_plain_text);
  sample_options.sequence = options.sequence;
  sample_options.seed = static_cast<std::uint64_t>(options.seed);
  const Samples samples(source.tokens, sample_options);
  at::set_num_threads(options.threads > 0 ? static_cast<int>(options.threads) : available_cores());
  // One stage holds all layers: no pipeline is needed to compute forwards of windows one after another.
  const StandaloneStage whole(model, even_partition(model.layers, 1).front(), scalar_type(options.dtype),
                              values_from_folder(folder));
  return {.loss = mean_loss(options, samples, model.family, *whole.stage, progress),
          .tokens = samples.ordered_count() * samples.targets_per_sample(),
          .windows = samples.ordered_count(),
          .data = source.opened.description};
}

}  // namespace chimera

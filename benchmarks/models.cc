// How fast models compute, for each FLOP: families and types of numbers side by side.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/version.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bench/machine_line.h"
#include "core/choices.h"
#include "core/freed_memory.h"
#include "data/samples.h"
#include "model/stage.h"
#include "model_config/model_flops.h"
#include "train/batches.h"
#include "train/precision.h"

namespace chimera::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> models = {"gpt2-mini", "llama-mini"};
  std::vector<std::string> dtypes = {"float32", "bfloat16"};
  std::int64_t layers = 0;  // 0: the model's
  std::int64_t micro_batch_size = 4;
  std::int64_t sequence = 128;
  int threads = 1;
  int rounds = 7;
};

/// A whole model on one worker; what is timed is a forward and a backward of one micro-batch.
class Contestant {
 public:
  Contestant(const std::string& model, const std::string& dtype, const Options& options)
      : model_(model), dtype_(dtype), config_(config_of(model, options)) {
    const auto kind = is_causal(config_.family) ? SampleKind::NextToken : SampleKind::MaskedPairs;
    const Samples samples(text_in_memory(text_, "text"), SampleOptions{kind, options.sequence, 1});
    batch_ = make_micro_batch(samples, config_.family, {0, 0, options.micro_batch_size, options.micro_batch_size});
    const auto type = parse_named<DataType>("--dtype", dtype);
    stage_ = make_stage(config_, StageLayers{0, config_.layers, true, true}, scalar_type(type), 1);
    flops_ = model_flops(config_, {.micro_batch_size = options.micro_batch_size, .sequence = options.sequence});
  }

  void run(bool counts) {
    const auto start = Clock::now();
    torch::autograd::backward({stage_->forward({}, batch_)}, {at::Tensor()});
    if (counts) seconds_.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }

  [[nodiscard]] double median_seconds() const {
    std::vector<double> sorted = seconds_;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
  [[nodiscard]] double gigaflops() const { return 1e-9 * flops_ / median_seconds(); }
  [[nodiscard]] const std::string& model() const { return model_; }
  [[nodiscard]] const std::string& dtype() const { return dtype_; }
  [[nodiscard]] const ModelConfig& config() const { return config_; }

 private:
  static ModelConfig config_of(const std::string& model, const Options& options) {
    ModelOverrides overrides;
    if (options.layers > 0) overrides.layers = options.layers;
    overrides.tied = false;  // the matrix would be another group of parameters
    return with_overrides(find_model(model), overrides);
  }

  std::string model_;
  std::string dtype_;
  ModelConfig config_;
  std::vector<std::uint8_t> text_ = std::vector<std::uint8_t>(1 << 16, 'a');
  MicroBatch batch_;
  std::unique_ptr<Stage> stage_;
  double flops_ = 0;
  std::vector<double> seconds_;
};

void run_all(const Options& options) {
  at::set_num_threads(options.threads);
  keep_freed_memory();  // as the trainer does
  fmt::print("{}\n", machine_line("LibTorch " TORCH_VERSION));
  fmt::print("Forward and backward of {} x {} tokens, {} threads, {} rounds in turn\n", options.micro_batch_size,
             options.sequence, options.threads, options.rounds);
  std::vector<std::unique_ptr<Contestant>> contestants;
  for (const std::string& model : options.models) {
    for (const std::string& dtype : options.dtypes) {
      contestants.push_back(std::make_unique<Contestant>(model, dtype, options));
    }
  }
  for (int round = 0; round <= options.rounds; ++round) {  // the first warms up
    for (const auto& contestant : contestants) contestant->run(round > 0);
  }
  fmt::print("{:<16} {:>6} {:>6} {:<9} {:>10} {:>9} {:>15}\n", "model", "layers", "hidden", "type", "median ms",
             "GFLOP/s", "of the first's");
  const double first = contestants.front()->gigaflops();
  for (const auto& each : contestants) {
    fmt::print("{:<16} {:>6} {:>6} {:<9} {:>10.1f} {:>9.1f} {:>15.2f}\n", each->model(), each->config().layers,
               each->config().hidden, each->dtype(), 1e3 * each->median_seconds(), each->gigaflops(),
               each->gigaflops() / first);
  }
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int count, char** words) {
  chimera::benchmarks::Options options;
  CLI::App app("FLOPs a second of models and types of numbers, side by side");
  app.add_option("--models", options.models, "presets, or TOML files")->delimiter(',')->capture_default_str();
  app.add_option("--dtypes", options.dtypes, "float32, float64 or bfloat16")->delimiter(',')->capture_default_str();
  app.add_option("--layers", options.layers, "in place of the presets'");
  app.add_option("--micro-batch-size", options.micro_batch_size)->capture_default_str();
  app.add_option("--sequence", options.sequence)->capture_default_str();
  app.add_option("--threads", options.threads)->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  CLI11_PARSE(app, count, words);
  try {
    chimera::benchmarks::run_all(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "models: {}\n", error.what());
    return 1;
  }
}

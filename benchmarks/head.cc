// Time of a model's head for one micro-batch, and its bytes of tensors without weights and gradients.

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
#include <string>
#include <utility>
#include <vector>

#include "bench/machine_line.h"
#include "core/choices.h"
#include "data/samples.h"
#include "model/linear.h"
#include "model/make_stage.h"
#include "runtime/memory_meter.h"
#include "train/loop/loader.h"
#include "train/setup/device.h"

namespace chimera::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kMebibyte = 1024.0 * 1024.0;

struct Options {
  std::string model = "gpt2";
  std::int64_t vocabulary = 0;  // 0: the model's
  std::int64_t micro_batch_size = 1;
  std::int64_t sequence = 1024;
  std::string dtype = "float32";
  int threads = 1;
  int rounds = 5;
};

/// An op of one micro-batch, in order of execution.
struct Op {
  const char* name;
  double peak_bytes = 0;          // peak bytes of tensors during the op
  double bytes_after = 0;         // bytes of tensors after the op
  std::vector<double> seconds{};  // of each round
};

/// The last stage of a model without blocks, run as the executor runs it.
class HeadBench {
 public:
  explicit HeadBench(const Options& options) : options_(options), config_(config_of(options)) {
    at::set_num_threads(options.threads);
    const auto kind = is_causal(config_.family) ? SampleKind::NextToken : SampleKind::MaskedPairs;
    const Samples samples(text_in_memory(text_, "text"), SampleOptions{kind, options.sequence, 1});
    batch_ = make_micro_batch(samples, config_.family, {0, 0, options.micro_batch_size, options.micro_batch_size});
    const at::ScalarType compute = scalar_type(parse_named<DataType>("--dtype", options.dtype));
    stage_ = make_stage(config_, StageLayers{0, 0, false, true}, compute, initial_values_of(1));
    hidden_ = at::randn({options.micro_batch_size, options.sequence, config_.hidden}).to(compute);
  }

  /// F and B, or F, I and W.
  std::vector<Op> run(bool splits) {
    std::vector<Op> ops = splits ? std::vector<Op>{{"F"}, {"I"}, {"W"}} : std::vector<Op>{{"F"}, {"B"}};
    for (int round = 0; round <= options_.rounds; ++round) run_round(ops, round > 0);  // the first is a warm-up
    return ops;
  }

 private:
  static ModelConfig config_of(const Options& options) {
    ModelOverrides overrides;
    if (options.vocabulary > 0) overrides.vocabulary = options.vocabulary;
    overrides.tied = false;
    return with_overrides(find_model(options.model), overrides);
  }

  void run_round(std::vector<Op>& ops, bool counts) {
    MemoryMeter meter(1);
    const MemoryMeter::Recording recording(meter, RankId(0));
    const auto measure = [&](Op& op, const auto& body) {
      (void)meter.take_sample(RankId(0));
      const auto start = Clock::now();
      body();
      if (counts) op.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      const MemorySample sample = meter.take_sample(RankId(0));
      op.peak_bytes = static_cast<double>(sample.peak);
      op.bytes_after = static_cast<double>(sample.live);
    };
    const auto queue = c10::make_intrusive<WeightGradients>();
    const at::Tensor input = hidden_.detach().requires_grad_();
    at::Tensor output;
    measure(ops[0], [&] {
      const WeightGradients::Scope scope(queue);
      output = stage_->forward(input, batch_);
    });
    if (ops.size() > 2) queue->defer();
    measure(ops[1], [&] { torch::autograd::backward({std::exchange(output, {})}, {at::Tensor()}); });
    if (ops.size() > 2) measure(ops[2], [&] { queue->run(); });
  }

  Options options_;
  ModelConfig config_;
  std::vector<std::uint8_t> text_ = std::vector<std::uint8_t>(1 << 16, 'a');
  MicroBatch batch_;
  std::unique_ptr<Stage> stage_;
  at::Tensor hidden_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void print_ops(const std::vector<Op>& ops) {
  double peak = 0;
  double seconds = 0;
  for (const Op& op : ops) {
    fmt::print("{:<4} {:>12.2f} {:>12.2f} {:>12.2f}\n", op.name, op.peak_bytes / kMebibyte, op.bytes_after / kMebibyte,
               1e3 * median(op.seconds));
    peak = std::max(peak, op.peak_bytes);
    seconds += median(op.seconds);
  }
  fmt::print("{:<4} {:>12.2f} {:>12} {:>12.2f}\n\n", "all", peak / kMebibyte, "", 1e3 * seconds);
}

void run_all(const Options& options) {
  fmt::print("{}\n", machine_line("LibTorch " TORCH_VERSION));
  fmt::print("The head of {}: {} x {} tokens, {}, {} threads; beside weights, their gradients and the input\n",
             options.model, options.micro_batch_size, options.sequence, options.dtype, options.threads);
  HeadBench bench(options);
  fmt::print("{:<4} {:>12} {:>12} {:>12}\n", "op", "peak MiB", "left MiB", "median ms");
  print_ops(bench.run(/*splits=*/false));
  print_ops(bench.run(/*splits=*/true));
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int count, char** words) {
  chimera::benchmarks::Options options;
  CLI::App app("Bytes and time that the head of a model takes for one micro-batch: F and B, then F, I and W");
  app.add_option("--model", options.model, "a preset")->capture_default_str();
  app.add_option("--vocabulary", options.vocabulary, "in place of the preset's");
  app.add_option("--micro-batch-size", options.micro_batch_size)->capture_default_str();
  app.add_option("--sequence", options.sequence)->capture_default_str();
  app.add_option("--dtype", options.dtype, "float32, float64 or bfloat16")->capture_default_str();
  app.add_option("--threads", options.threads)->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  CLI11_PARSE(app, count, words);
  try {
    chimera::benchmarks::run_all(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "head: {}\n", error.what());
    return 1;
  }
}

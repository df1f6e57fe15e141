// FLOP rates of model families and data types, on the CPU or on a GPU.

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
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/machine_line.h"
#include "core/choices.h"
#include "core/error.h"
#include "core/resident_memory.h"
#include "data/samples.h"
#include "launch/local/launcher.h"
#include "measuring/device_difference.h"
#include "model/linear.h"
#include "model/make_stage.h"
#include "model_config/parameters.h"
#include "train/loop/loader.h"
#include "train/setup/device.h"
#include "transport/stream.h"

namespace chimera::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kMebibyte = 1024.0 * 1024.0;

struct Options {
  std::vector<std::string> models = {"gpt2-mini", "llama-mini"};
  std::vector<std::string> dtypes = {"float32", "bfloat16"};
  std::int64_t layers = 0;  // 0: the model's
  std::int64_t micro_batch_size = 4;
  std::int64_t sequence = 128;
  int threads = 1;
  int rounds = 7;
  int micro_batches = 1;  // per round; several on a GPU, as the host runs ahead of it
  bool blocks = false;    // without embedding and head
  bool kernels = false;   // also count kernels and compare host with device
  bool compare = false;   // compare tensors with the CPU's; measure nothing
  std::string device = "cpu";
  double peak = 0;  // TFLOP/s of bfloat16; 0: the GPU's data sheet
};

/// Opens the GPU library, which lies beside the program `chimera`.
const Accelerator& gpu_library() {
  static const Accelerator& library =
      open_accelerator(std::filesystem::path(own_executable()).parent_path().parent_path() / "libchimera_cuda.so");
  return library;
}

at::Device device_of(const Options& options) {
  if (options.device == "cpu") return at::kCPU;
  const Accelerator& gpus = gpu_library();
  if (const std::string problem = gpus.problem(); !problem.empty()) {
    throw ConfigError("--device cuda: no usable GPU here (" + problem + ")");
  }
  TrainOptions numbers;
  numbers.device.kind = DeviceKind::Cuda;
  set_matmul_precision(numbers);
  return {gpus.type(), 0};
}

/// The FLOPs of a forward and backward of one micro-batch.
double flops_of(const ModelConfig& config, const Options& options) {
  const Workload workload = {.micro_batch_size = options.micro_batch_size, .sequence = options.sequence};
  if (!options.blocks) return model_flops(config, workload);
  const LayerFootprint block = layer_footprint(config, LayerKind::Block, workload);
  return static_cast<double>(config.layers) *
         (block.forward_flops + block.input_gradient_flops + block.weight_gradient_flops);
}

ModelConfig config_of(const std::string& model, const Options& options) {
  ModelOverrides overrides;
  if (options.layers > 0) overrides.layers = options.layers;
  overrides.tied = false;  // the tied matrix would be another parameter group
  return with_overrides(find_model(model), overrides);
}

MicroBatch micro_batch_of(const ModelConfig& config, const Options& options) {
  const std::vector<std::uint8_t> text(1 << 16, 'a');
  const auto kind = is_causal(config.family) ? SampleKind::NextToken : SampleKind::MaskedPairs;
  const Samples samples(text_in_memory(text, "text"), SampleOptions{kind, options.sequence, 1});
  return make_micro_batch(samples, config.family, {0, 0, options.micro_batch_size, options.micro_batch_size});
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Seconds of a micro-batch, and kernels, copies and fills of all blocks.
struct Launches {
  double host_seconds = 0;    // to enqueue it on an idle device
  double device_seconds = 0;  // to run it as a CUDA graph, which needs no launches
  std::vector<std::string> forward;
  std::vector<std::string> both;
};

/// A model on one worker, whole or only its blocks. Times a forward and a backward of each micro-batch.
class Contestant {
 public:
  Contestant(const std::string& model, const std::string& dtype, const Options& options, at::Device device)
      : model_(model), dtype_(dtype), config_(config_of(model, options)), micro_batches_(options.micro_batches) {
    batch_ = on_device(micro_batch_of(config_, options), device);
    const auto type = scalar_type(parse_named<DataType>("--dtype", dtype));
    stage_ = make_stage(config_, StageLayers{0, config_.layers, !options.blocks, !options.blocks}, type,
                        initial_values_of(1), {}, device);
    if (options.blocks) {
      hidden_ = at::randn({options.micro_batch_size, options.sequence, config_.hidden},
                          at::TensorOptions(device).dtype(type));
      gradient_ = at::randn_like(hidden_);
    }
    flops_ = flops_of(config_, options) * options.micro_batches;
  }

  void run(bool counts) {
    const auto start = Clock::now();
    for (int i = 0; i < micro_batches_; ++i) run_one();
    wait();
    if (counts) seconds_.push_back(seconds_since(start));
  }

  /// Call it after run(), because first uses of kernels cannot be recorded.
  [[nodiscard]] Launches launches(const Accelerator& gpus, int rounds) {
    std::vector<double> host;
    for (int round = 0; round < rounds; ++round) {
      const auto start = Clock::now();
      run_one();
      host.push_back(seconds_since(start));
      wait();
    }
    auto forward = gpus.record([&] { static_cast<void>(this->forward()); }, nullptr, {})->kernels();
    const auto both = gpus.record([&] { run_one(); }, nullptr, {});
    std::vector<double> device;
    for (int round = 0; round <= rounds; ++round) {
      const auto start = Clock::now();
      for (int i = 0; i < micro_batches_; ++i) both->repeat();
      wait();
      if (round > 0) device.push_back(seconds_since(start) / micro_batches_);
    }
    return {.host_seconds = median(host),
            .device_seconds = median(device),
            .forward = std::move(forward),
            .both = both->kernels()};
  }

  [[nodiscard]] double median_seconds() const { return median(seconds_); }
  [[nodiscard]] double gigaflops() const { return 1e-9 * flops_ / median_seconds(); }
  [[nodiscard]] const std::string& model() const { return model_; }
  [[nodiscard]] const std::string& dtype() const { return dtype_; }
  [[nodiscard]] const ModelConfig& config() const { return config_; }

 private:
  [[nodiscard]] at::Tensor input() const {
    return hidden_.defined() ? hidden_.detach().requires_grad_() : at::Tensor();
  }
  /// As the executor does: kernels for many tensors then add the small weight gradients.
  at::Tensor forward() {
    const WeightGradients::Scope scope(c10::make_intrusive<WeightGradients>());
    return stage_->forward(input(), batch_);
  }
  void run_one() { torch::autograd::backward({forward()}, {gradient_}); }
  void wait() { static_cast<void>(stage_->gradients()[0].item<double>()); }

  std::string model_;
  std::string dtype_;
  ModelConfig config_;
  int micro_batches_;
  MicroBatch batch_;
  at::Tensor hidden_;    // input of the blocks
  at::Tensor gradient_;  // gradient of their output
  std::unique_ptr<Stage> stage_;
  double flops_ = 0;
  std::vector<double> seconds_;
};

/// In FLOP/s; 0 if unknown.
double peak_of(const Options& options, at::Device device) {
  if (options.peak > 0 || device.is_cpu()) return 1e12 * options.peak;
  const std::string name = gpu_library().traits(device.index()).name;
  const double peak = bfloat16_peak(name);
  fmt::print("{}: {}\n", name,
             peak > 0 ? fmt::format("{:g} TFLOP/s of bfloat16 by its data sheet", 1e-12 * peak)
                      : "its data sheet is not known here; give --peak");
  return peak;
}

/// Prints the first tensor that differs by more than rounding. Returns whether there is none.
bool compare(const Options& options, at::Device device) {
  bool all_agree = true;
  for (const std::string& model : options.models) {
    for (const std::string& dtype : options.dtypes) {
      const ModelConfig config = config_of(model, options);
      const auto type = scalar_type(parse_named<DataType>("--dtype", dtype));
      const auto tensors =
          compare_layers(make_single_layers(config, reference_type(type), 1, at::kCPU),
                         make_single_layers(config, type, 1, device), micro_batch_of(config, options), type, device);
      const double tolerance = rounding_tolerance(type);
      const DeviceDifference* first = first_different(tensors, tolerance);
      const DeviceDifference& shown =
          first != nullptr ? *first : *std::ranges::max_element(tensors, {}, &DeviceDifference::relative);
      fmt::print("{} {} on {}: {}: {}: {:.2g} of {:.2g} (tolerance {:g} of it)\n", model, dtype, options.device,
                 first != nullptr ? fmt::format("first differing tensor of {}", tensors.size())
                                  : fmt::format("{} tensors agree; largest difference", tensors.size()),
                 shown.name, shown.largest, shown.scale, tolerance);
      all_agree = all_agree && first == nullptr;
    }
  }
  return all_agree;
}

using Contestants = std::vector<std::unique_ptr<Contestant>>;

/// Prints how often the forwards and backwards of a block start each kernel.
void print_kernels(const Contestant& contestant, const Launches& found) {
  std::map<std::string, std::pair<int, int>> counts;
  for (const std::string& name : found.forward) ++counts[name].first;
  for (const std::string& name : found.both) ++counts[name].second;
  const double blocks = contestant.config().layers;
  fmt::print("{} {}: forward, backward and name of each kernel of a block\n", contestant.model(), contestant.dtype());
  for (const auto& [name, count] : counts) {
    fmt::print("{:>6.1f} {:>6.1f}  {}\n", count.first / blocks, (count.second - count.first) / blocks,
               name.substr(0, 200));
  }
}

/// Host time against device time, kernels of a block, and peak memory so far.
void print_launches(const Contestants& contestants, const Options& options) {
  fmt::print("{:<16} {:<9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "model", "type", "host ms", "device ms",
             "bound by", "forward k.", "backward k.", "peak MiB");
  std::vector<Launches> all;
  for (const auto& each : contestants) {
    const Launches& found = all.emplace_back(each->launches(gpu_library(), options.rounds));
    const double forward = static_cast<double>(found.forward.size()) / each->config().layers;
    const double both = static_cast<double>(found.both.size()) / each->config().layers;
    fmt::print("{:<16} {:<9} {:>10.2f} {:>10.2f} {:>10} {:>10.1f} {:>10.1f} {:>10.0f}\n", each->model(), each->dtype(),
               1e3 * found.host_seconds, 1e3 * found.device_seconds,
               found.host_seconds > found.device_seconds ? "launches" : "compute", forward, both - forward,
               static_cast<double>(gpu_library().peak_bytes(0)) / kMebibyte);
  }
  for (std::size_t i = 0; i < all.size(); ++i) print_kernels(*contestants[i], all[i]);
}

void run_all(const Options& options, at::Device device) {
  keep_freed_memory();  // as the trainer does
  fmt::print("{}\n", machine_line("LibTorch " TORCH_VERSION));
  fmt::print("Forward and backward of {} times {} x {} tokens{}, {} threads, {} rounds in turn\n",
             options.micro_batches, options.micro_batch_size, options.sequence, options.blocks ? ", blocks alone" : "",
             options.threads, options.rounds);
  const double peak = peak_of(options, device);
  Contestants contestants;
  for (const std::string& model : options.models) {
    for (const std::string& dtype : options.dtypes) {
      contestants.push_back(std::make_unique<Contestant>(model, dtype, options, device));
    }
  }
  for (int round = 0; round <= options.rounds; ++round) {  // the first is a warm-up
    for (const auto& contestant : contestants) contestant->run(round > 0);
  }
  fmt::print("{:<16} {:>6} {:>6} {:<9} {:>10} {:>9} {:>15}{}\n", "model", "layers", "hidden", "type", "median ms",
             "GFLOP/s", "of the first's", peak > 0 ? fmt::format(" {:>9}", "of peak") : "");
  const double first = contestants.front()->gigaflops();
  for (const auto& each : contestants) {
    fmt::print("{:<16} {:>6} {:>6} {:<9} {:>10.1f} {:>9.1f} {:>15.2f}{}\n", each->model(), each->config().layers,
               each->config().hidden, each->dtype(), 1e3 * each->median_seconds(), each->gigaflops(),
               each->gigaflops() / first,
               peak > 0 ? fmt::format(" {:>7.1f} %", 100 * 1e9 * each->gigaflops() / peak) : "");
  }
  if (!options.kernels) return;
  std::fflush(stdout);  // A failed recording loses no times
  print_launches(contestants, options);
}

/// Returns the exit code.
int run(const Options& options) {
  if (options.kernels && options.device == "cpu") {
    throw ConfigError("--kernels: only GPUs record their kernels; use --device cuda, or leave it out");
  }
  at::set_num_threads(options.threads);
  const at::Device device = device_of(options);
  const PooledStreamGuard stream(device);  // CUDA records no work of the default stream
  if (options.compare) return compare(options, device) ? 0 : 1;
  run_all(options, device);
  return 0;
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
  app.add_option("--micro-batches", options.micro_batches, "of a round")->check(CLI::Range(1, 1000));
  app.add_flag("--blocks", options.blocks, "without embedding and head, from hidden states to hidden states");
  app.add_flag("--kernels", options.kernels,
               "also list the kernels of a block, and compare the host's time to enqueue with the device's; GPUs only");
  app.add_flag("--compare", options.compare, "name the first tensor that differs from the CPU's; measure nothing")
      ->excludes("--blocks")
      ->excludes("--kernels");
  app.add_option("--device", options.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--peak", options.peak, "TFLOP/s of which shares are printed (default: the GPU's data sheet)");
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  CLI11_PARSE(app, count, words);
  try {
    return chimera::benchmarks::run(options);
  } catch (const chimera::ConfigError& error) {
    fmt::print(stderr, "models: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "models: {}\n", error.what());
    return 1;
  }
}

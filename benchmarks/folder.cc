// Speed and memory of the ranks of a pipeline that read a Hugging Face folder, compared with `cat`, which reads the
// same bytes from the page cache and discards them.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/machine_line.h"
#include "core/random.h"
#include "core/resident_memory.h"
#include "core/shared_memory.h"
#include "engine/stored_values.h"
#include "hugging_face/model_folder.h"
#include "train/setup/device.h"

namespace chimera::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string folder;
  std::string make;  // model of a folder to create first
  std::string dtype = "float32";
  std::int64_t ranks = 4;
  int rounds = 3;
};

/// A rank's results, in memory shared with the parent.
struct RankReport {
  double seconds = 0;
  double own_bytes = 0;       // of its weights
  double resident_bytes = 0;  // peak while reading, above the initial amount
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Creates a folder of a preset with random bfloat16 weights; all blocks of data are equal.
void make_folder(const std::string& name, const std::string& path) {
  const ModelConfig model = find_model(name);
  const ExportPlan plan = plan_export(exported_tensors(model, ElementType::BF16), kDefaultShardBytes);
  const CounterRandom random(1, "folder");
  std::vector<std::uint16_t> block(1 << 20);
  for (std::size_t i = 0; i < block.size(); ++i) {  // the upper half of a float32
    block[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(random.normal(i))) >> 16U);
  }
  StagedFolder staged(path);
  staged.make_weights(plan);
  for (const ExportFile& file : plan.files) {
    PartWriter writer(staged.path() + "/" + file.name);
    for (std::uint64_t at = file.layout.head.size(); at < file.layout.file_bytes; at += block.size() * 2) {
      const std::uint64_t left = file.layout.file_bytes - at;
      writer.write(at, std::as_bytes(std::span(block)).first(std::min<std::uint64_t>(left, block.size() * 2)));
    }
  }
  add_description(staged, model, nullptr, ElementType::BF16);
  staged.commit();
}

/// One rank of 1F1B: reads the weights of its stage, as at the start of training.
RankReport read_stage(const Options& options, std::int64_t rank) {
  at::set_num_threads(1);
  const auto folder = std::make_shared<const ModelFolder>(options.folder);
  const auto layers = even_partition(folder->model().layers, options.ranks)[static_cast<std::size_t>(rank)];
  const at::ScalarType compute = scalar_type(parse_named<DataType>("--dtype", options.dtype));
  (void)at::empty({1}, compute);
  const double before = peak_resident_bytes();
  const auto start = Clock::now();
  const InitialValue value = values_from_folder(folder);
  std::unique_ptr<TiedWeight> tied;
  if (folder->model().tied && (layers.embedding || layers.head)) {
    tied = make_tied_weight(folder->model(), {layers.embedding, layers.head}, compute, value);
  }
  const auto stage = make_stage(folder->model(), layers, compute, value, tied ? tied->leaves() : TiedLeaves{});
  const auto type = parse_named<DataType>("--dtype", options.dtype);
  const std::int64_t copies = scalar_type(type) == scalar_type(master_type(type)) ? 0 : bytes_of(type);
  const std::int64_t bytes = bytes_of(master_type(type)) + copies;
  return {.seconds = seconds_since(start),
          .own_bytes = static_cast<double>(parameter_count(folder->model(), layers) * bytes),
          .resident_bytes = peak_resident_bytes() - before};
}

/// Runs `act` in a process for each rank, all at once. Returns the seconds until the last has ended.
double in_processes(std::int64_t ranks, const std::function<void(std::int64_t)>& act) {
  const auto start = Clock::now();
  std::vector<pid_t> children;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        act(rank);
        ::_exit(0);
      } catch (const std::exception& error) {
        fmt::print(stderr, "folder: rank {}: {}\n", rank, error.what());
        ::_exit(1);
      }
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    if (::waitpid(child, &status, 0) < 0 || status != 0) throw Error("a rank failed");
  }
  return seconds_since(start);
}

/// Lower bound for any reader: the kernel delivers this rank's share of the files, and the memory of its weights.
void read_share(const Options& options, std::int64_t rank, double own_bytes) {
  std::vector<char> block(1 << 16);
  for (const auto& entry : std::filesystem::directory_iterator(options.folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto bytes = static_cast<std::int64_t>(entry.file_size());
    std::ifstream file(entry.path(), std::ios::binary);
    file.rdbuf()->pubsetbuf(nullptr, 0);
    file.seekg(bytes * rank / options.ranks);
    for (std::int64_t left = bytes / options.ranks; left > 0 && file; left -= std::ssize(block)) {
      file.read(block.data(), std::min(left, std::ssize(block)));
    }
  }
  const std::vector<char> weights(static_cast<std::size_t>(own_bytes), 1);
}

/// One process reads all files.
double cat_seconds(const Options& options) {
  const std::string command = fmt::format("cat '{}'/*.safetensors > /dev/null", options.folder);
  const auto start = Clock::now();
  if (std::system(command.c_str()) != 0) throw Error(command + " failed");
  return seconds_since(start);
}

void run_all(const Options& options) {
  if (!options.make.empty()) make_folder(options.make, options.folder);
  double file_bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(options.folder)) {
    if (entry.path().extension() == ".safetensors") file_bytes += static_cast<double>(entry.file_size());
  }
  const SharedMemory page(sizeof(RankReport) * static_cast<std::size_t>(options.ranks));
  auto* const reports = reinterpret_cast<RankReport*>(page.data());
  fmt::print("{}\n{}: {:.2f} GB in files, {} ranks, {}\n", machine_line(), options.folder, file_bytes / 1e9,
             options.ranks, options.dtype);
  fmt::print("{:>5}  {:>8}  {:>8}  {:>8}  {:>8}  {:>9}  {:>20}\n", "round", "cat s", "kernel s", "ranks s", "GB/s",
             "own GB", "resident / own, most");
  (void)cat_seconds(options);  // fills the page cache
  for (int round = 0; round < options.rounds; ++round) {
    const double cat = cat_seconds(options);
    const double ranks =
        in_processes(options.ranks, [&](std::int64_t rank) { reports[rank] = read_stage(options, rank); });
    const double kernel =
        in_processes(options.ranks, [&](std::int64_t rank) { read_share(options, rank, reports[rank].own_bytes); });
    double own = 0;
    double most = 0;
    for (std::int64_t rank = 0; rank < options.ranks; ++rank) {
      own += reports[rank].own_bytes;
      most = std::max(most, reports[rank].resident_bytes / reports[rank].own_bytes);
    }
    fmt::print("{:>5}  {:>8.2f}  {:>8.2f}  {:>8.2f}  {:>8.2f}  {:>9.2f}  {:>20.3f}\n", round + 1, cat, kernel, ranks,
               file_bytes / 1e9 / ranks, own / 1e9, most);
  }
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int count, char** words) {
  chimera::benchmarks::Options options;
  CLI::App app("Reads a Hugging Face folder over the ranks of a pipeline, in turn with cat");
  app.add_option("FOLDER", options.folder)->required();
  app.add_option("--make", options.make, "make it first: this preset with random bfloat16 weights");
  app.add_option("--dtype", options.dtype, "that layers compute with")->capture_default_str();
  app.add_option("--ranks", options.ranks)->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  CLI11_PARSE(app, count, words);
  try {
    chimera::benchmarks::run_all(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "folder: {}\n", error.what());
    return 1;
  }
}

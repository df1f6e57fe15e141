#include "profile/profiler.h"

#include <unistd.h>

#include <ATen/ATen.h>
#include <algorithm>
#include <numeric>
#include <set>

#include "bench/machine_line.h"
#include "bench/statistics.h"
#include "core/cgroup.h"
#include "core/counted.h"
#include "core/host_name.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "data/samples.h"
#include "engine/tensor_ranks.h"
#include "model_config/tensor_cut.h"
#include "profile/layer_timer.h"
#include "profile/lockstep.h"
#include "profile/measure_contention.h"
#include "profile/measure_overheads.h"
#include "train/setup/device.h"

// measure_machine() runs one measurement after another, each for a share of the given seconds: links between two ranks
// while the others are quiet, overheads of the host, contention of ops and communication, and most of the time the
// layers. Every measurement is collective, and a rank that does not take part in one still joins its barriers
// (Lockstep). Results are valid on rank 0, which writes the profile.

namespace chimera {

namespace {

constexpr std::int64_t kWidth = 1024;

double measure_type(Lockstep& ranks, at::ScalarType type, std::int64_t threads, double seconds) {
  const at::NoGradGuard no_grad;
  const at::Tensor one = at::ones({kWidth, kWidth}, type);
  at::Tensor product = at::empty_like(one);
  std::vector<double> times;
  ranks.repeat(seconds, [&](std::int64_t) {
    if (!ranks.computes()) return;
    const Stopwatch watch;
    // Into existing memory, so that no allocation is timed.
    at::mm_out(product, one, one);
    times.push_back(seconds_of(watch.elapsed(), threads));
  });
  // The lower quartile: other programs only lengthen a product.
  constexpr auto kFlops = 2.0 * kWidth * kWidth * kWidth;
  double speed = ranks.computes() ? kFlops / spread_of(times).low : 0;
  ranks.average({&speed, 1});
  return speed;
}

/// Returns a rank's FLOP/s of products of large matrices by type, while all compute. Collective.
std::map<DataType, double> measure_matrix_flops(Lockstep& ranks, std::int64_t threads, double seconds) {
  std::map<DataType, double> flops;
  for (const DataType type : {DataType::Float32, DataType::Float64, DataType::BFloat16}) {
    if (type == DataType::BFloat16 && !has_native_bfloat16()) continue;
    flops[type] = measure_type(ranks, scalar_type(type), threads, seconds / 3);
  }
  return flops;
}

constexpr std::int64_t kMaxLocalWorkers = 1024;  // `chimera train` starts all ranks on this machine

/// The computing ranks in groups of T neighbors. With T = 2 and 5 computing ranks: groups {0, 1} and {2, 3}; rank 4
/// measures nothing of this T.
struct SharingRanks {
  std::int64_t ranks = 1;    // T
  std::int64_t members = 0;  // ranks in groups: the first ones
  std::int64_t first_group = 0;

  [[nodiscard]] bool has(int rank) const { return rank < members; }
};

/// Leaves out each T that has no group.
std::vector<SharingRanks> sharing_ranks(const ProfileOptions& options, std::int64_t computing) {
  std::vector<SharingRanks> all;
  // Numbers of groups of the transport: profile_groups(options, cores) appends them in this order.
  auto group = std::ssize(profile_groups());
  for (const std::int64_t ranks : options.tensor_parallel) {
    if (ranks < 2 || ranks > computing) continue;
    all.push_back({ranks, computing / ranks * ranks, group});
    group += computing / ranks;
  }
  return all;
}

/// One kind of layer of one model, whole or shared by T ranks, with its measured times.
struct Item {
  TimedLayers layers;
  std::vector<std::int64_t> sizes;  // of micro-batches
  SharingRanks sharing;
  std::unique_ptr<TensorGroup> tensor;  // null: whole layers, or a rank without a group
  LayerTimer bench{layers};
  std::map<std::int64_t, std::vector<LayerTime>> times = {};  // [micro-batch size][round]
  std::map<double, std::vector<double>> waits = {};           // [bytes][round]: mean seconds of an exchange
  [[nodiscard]] bool is_split() const { return sharing.ranks > 1; }
};
using Items = std::vector<Item>;

std::int64_t sequence_of(const ProfileOptions& options, const ModelConfig& model) {
  return options.sequence.value_or(std::min(ProfiledModel().sequence, model.positions));
}

std::vector<ProfiledModel> profiled_models(const ProfileOptions& options) {
  std::vector<ProfiledModel> all;
  for (const std::string& name : options.models) {
    const ModelConfig model = find_model(name);
    all.push_back({model, sequence_of(options, model), options.micro_batch_sizes});
  }
  all.insert(all.end(), options.others.begin(), options.others.end());
  return all;
}

constexpr std::array kKinds = {LayerKind::Embedding, LayerKind::Block, LayerKind::Head};

/// Adds the layers of a model: whole, or shared by the ranks of a group.
void add_layers(const ProfileOptions& options, const ProfiledModel& profiled, const Lockstep& ranks,
                const SharingRanks& sharing, Items& items) {
  for (const LayerKind kind : kKinds) {
    std::unique_ptr<TensorGroup> tensor;
    // Every rank makes the item, so that all run the same loops; ranks without a group measure nothing in it.
    if (sharing.has(ranks.rank())) {
      const TensorPlace place{ranks.rank() % sharing.ranks, sharing.ranks, head_groups(profiled.model, sharing.ranks)};
      const ParameterGroupId group(sharing.first_group + ranks.rank() / sharing.ranks);
      const bool cuts = profiled.sequence % sharing.ranks == 0;
      tensor = std::make_unique<RankTensorGroup>(ranks.transport(), place, group, cuts);
    }
    const TimedLayers layers{profiled.model, kind,          profiled.sequence, scalar_type(options.dtype),
                             tensor.get(),   options.device};
    items.push_back({layers, profiled.micro_batch_sizes, sharing, std::move(tensor)});
  }
}

/// Returns the whole layers of all models.
Items make_items(const ProfileOptions& options, const Lockstep& ranks) {
  Items items;
  for (const ProfiledModel& profiled : profiled_models(options)) add_layers(options, profiled, ranks, {}, items);
  return items;
}

/// Adds the layers that groups of ranks share.
void add_split_items(const ProfileOptions& options, const Lockstep& ranks, Items& items) {
  for (const SharingRanks& sharing : sharing_ranks(options, ranks.computing())) {
    for (const ProfiledModel& profiled : profiled_models(options)) {
      // T must divide the model.
      if (find_split_error(profiled.model, sharing.ranks).empty()) add_layers(options, profiled, ranks, sharing, items);
    }
  }
}

/// Returns the computing ranks' maximum over their mean, minus 1.
double excess_of_slowest(Lockstep& ranks, double value) {
  std::vector<double> values(static_cast<std::size_t>(ranks.computing()), 0);
  if (ranks.computes()) values[static_cast<std::size_t>(ranks.rank())] = value;
  ranks.transport().all_sum(values);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return sum > 0 ? std::ranges::max(values) * static_cast<double>(values.size()) / sum - 1 : 0;
}

/// Returns the measured rounds, and sets the times of the items and `core_imbalance`. The first round warms up.
std::int64_t measure_layers(Lockstep& ranks, const ProfileOptions& options, Items& items, double seconds,
                            double& core_imbalance, const std::function<void(const std::string&)>& report_progress) {
  std::int64_t rounds = 0;
  std::vector<double> excesses;
  std::set<std::int64_t> sizes;  // ascending: small micro-batches come first in each round
  for (const Item& item : items) sizes.insert(item.sizes.begin(), item.sizes.end());
  ranks.repeat(seconds, [&](std::int64_t round) {
    for (const std::int64_t size : sizes) {
      for (Item& item : items) {  // alternates layers, as a pipeline
        if (std::ranges::count(item.sizes, size) == 0) continue;
        const bool runs = item.is_split() ? item.sharing.has(ranks.rank()) : ranks.computes();
        // All computing ranks run the same op at the same time, so that caches and memory are as busy as in training.
        const LayerTime time = runs ? item.bench.run(size, options.threads) : LayerTime{};
        const double excess = excess_of_slowest(ranks, time.whole());
        const auto waits = item.tensor ? item.bench.group()->take_means() : std::map<double, double>{};
        if (round == 0) continue;
        if (runs) item.times[size].push_back(time);
        for (const auto& [bytes, mean] : waits) item.waits[bytes].push_back(mean);
        if (item.layers.kind == LayerKind::Block && !item.is_split()) excesses.push_back(excess);
      }
    }
    rounds = round;
    report_progress(fmt::format("layers: round {}", round));
  });
  core_imbalance = spread_of(excesses).median;
  return rounds;
}

LayerTime median_of(std::int64_t micro_batch_size, const std::vector<LayerTime>& times) {
  LayerTime median{.micro_batch_size = micro_batch_size};
  for (const auto& number : kLayerTimeNumbers) median.*number.value = spread_of(mapped(times, number.value)).median;
  const Spread whole = spread_of(mapped(times, &LayerTime::whole));
  median.spread = whole.median > 0 ? (whole.high - whole.low) / 2 / whole.median : 0;
  return median;
}

LayerTimes times_of(Lockstep& ranks, const ProfileOptions& options, Item& item) {
  LayerTimes layer{item.layers.kind, item.layers.model, item.layers.sequence,
                   options.dtype,    /*times=*/{},      item.sharing.ranks};
  // The times are of one layer, for a model of any depth.
  layer.model.layers = 1;
  // Of ranks without a group, the times are 0.
  const double share =
      item.is_split() ? static_cast<double>(ranks.computing()) / static_cast<double>(item.sharing.members) : 1;
  for (const std::int64_t size : item.sizes) {
    LayerTime& time = layer.times.emplace_back(median_of(size, item.times[size]));
    for (const auto& number : kLayerTimeNumbers) {
      time.*number.value *= share;
      ranks.average({&(time.*number.value), 1});
    }
  }
  return layer;
}

/// Fits a line to the means over ranks of the median exchanges in ops, of the smallest measured T. Collective; valid on
/// rank 0. Returns zeros if no layers were split.
LinkTimes op_sums_of(Lockstep& ranks, const Items& items) {
  std::map<double, std::vector<double>> waits;
  double members = 1;
  for (const Item& item : items) {
    if (!item.is_split() || (!waits.empty() && static_cast<double>(item.sharing.members) != members)) continue;
    members = static_cast<double>(item.sharing.members);
    for (const auto& [bytes, seconds] : item.waits) {
      auto& all = waits[bytes];
      all.insert(all.end(), seconds.begin(), seconds.end());
    }
  }
  std::vector<double> means;
  for (const auto& [bytes, seconds] : waits) means.push_back(spread_of(seconds).median / members);
  // Rank 0 has a group for each T, so its number of sizes is the largest; others may have none.
  means.resize(static_cast<std::size_t>(ranks.broadcast(static_cast<double>(means.size()))));
  if (means.empty()) return {};
  ranks.transport().all_sum(means);
  std::vector<TimedSize> points;
  for (const auto& [bytes, seconds] : waits) points.push_back({bytes, means[points.size()]});
  return points.size() < 2 ? LinkTimes{} : to_message_times(regress_line(points));
}

/// Runs each of these layers once, `first` to `end` - 1.
OpWork layers_of(const ProfileOptions& options, Items& items, std::size_t first, std::size_t end) {
  return [&items, first, end, threads = options.threads] {
    for (std::size_t i = first; i < end; ++i) (void)items[i].bench.run(items[i].sizes.front(), threads);
  };
}

LinkProfile everywhere(const LinkTimes& link) { return {link, link}; }

/// Valid on rank 0.
LinkSamples measure_quiet_links(Lockstep& ranks, double seconds, MachineProfile& machine) {
  const LinkSamples links = measure_links(ranks, kPairGroup, seconds);
  if (ranks.rank() == 0) {
    machine.point_to_point = everywhere(to_message_times(regress_line(links.messages)));
    machine.all_reduce = everywhere(to_all_reduce_times(regress_line(links.sums)));
  }
  return links;
}

/// If only one rank has a core, measures just message copies and core sharing.
void measure_contention(Lockstep& ranks, double seconds, const ProfileOptions& options, Items& items,
                        MachineProfile& machine) {
  const OpWork compute = layers_of(options, items, 1, 2);  // blocks of the first model
  machine.message_copy = measure_message_copies(ranks, compute, seconds / 3);
  machine.core_sharing = measure_core_sharing(ranks, layers_of(options, items, 0, kLayerKinds), seconds / 3);
  // One core cannot run ops beside an all-reduce; its slowdown would be that of sharing the core.
  if (ranks.computing() < 2) return;
  machine.contention =
      measure_all_reduce_overlap(ranks, kPairGroup, machine.all_reduce.within_node, compute, seconds / 3);
  machine.contention.sums_overlap = measure_sums_overlap(ranks, {kPairGroup, kOtherPairGroup}, seconds / 6);
  machine.contention.transfers = measure_transfers_at_once(ranks, seconds / 6);
  machine.contention.idle_gain =
      measure_idle_gain(ranks, layers_of(options, items, 0, items.size()), options.threads, seconds / 6);
}

/// The largest stage exceeds caches most, as in training.
Stage& largest_stage(Items& items) {
  return std::ranges::max_element(items, {}, [](Item& item) { return num_elements(item.bench.stage()); })
      ->bench.stage();
}

/// Returns installed memory or the control group's limit.
double memory_of_host() {
  const double installed =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return std::min(installed, available_memory_bytes());
}

std::string row(const LayerTimes& layer, const LayerTime& time) {
  const std::string kind = layer.tensor_parallel == 1
                               ? to_text(layer.kind)
                               : fmt::format("{} / {}", to_text(layer.kind), layer.tensor_parallel);
  return fmt::format("{:<12} {:<13} {:>5} {:>11.3f} {:>11.3f} {:>11.3f} {:>11.3f} {:>8.1f}\n", layer.model.name, kind,
                     time.micro_batch_size, 1e3 * time.forward, 1e3 * time.input_gradient, 1e3 * time.weight_gradient,
                     1e3 * time.recompute, 100 * time.spread);
}

}  // namespace

ProfileRanks profile_ranks(const ProfileOptions& options, int cores) {
  const int computing = std::max(1, cores / static_cast<int>(options.threads));
  return {computing, computing + 2};
}

RankGroups profile_groups(const ProfileOptions& options, int cores) {
  RankGroups groups = profile_groups();
  for (const SharingRanks& sharing : sharing_ranks(options, profile_ranks(options, cores).computing)) {
    for (std::int64_t rank = 0; rank < sharing.members; ++rank) {
      if (rank % sharing.ranks == 0) groups.emplace_back();
      groups.back().emplace_back(rank);
    }
  }
  return groups;
}

void require_measurable(const ProfileOptions& options, int cores) {
  if (options.models.empty()) throw ConfigError("--model: the name of a model is missing");
  for (const std::string& name : options.models) {
    const ModelConfig model = find_model(name);
    const std::int64_t sequence = sequence_of(options, model);
    if (sequence > model.positions)
      reject("--sequence {} is more than the {} positions of model '{}'", sequence, model.positions, name);
    require_within_window(model, sequence);
    const bool causal = is_causal(model.family);
    const std::int64_t needed = vocabulary_needed(causal ? SampleKind::NextToken : SampleKind::MaskedPairs);
    if (model.vocabulary < needed)
      reject("model '{}' has a vocabulary of {}; text needs at least {}", name, model.vocabulary, needed);
    const std::int64_t shortest = causal ? 1 : 8;
    if (sequence < shortest) reject("--sequence {}: model '{}' needs at least {}", sequence, name, shortest);
  }
  if (options.micro_batch_sizes.empty()) throw ConfigError("--micro-batch-sizes: give at least one");
  if (std::ranges::adjacent_find(options.micro_batch_sizes, std::greater_equal<>()) !=
          options.micro_batch_sizes.end() ||
      options.micro_batch_sizes.front() < 1)
    throw ConfigError("--micro-batch-sizes: give ascending whole numbers from 1 on, as in 1,2,4,8");
  if (options.threads < 1 || options.threads > cores)
    reject("--threads {}: this machine has {} cores for them", options.threads, cores);
  const int computing = profile_ranks(options, cores).computing;
  for (const std::int64_t ranks : options.tensor_parallel) {
    if (ranks < 1) reject("--tensor-parallel {}: give whole numbers from 1 on", ranks);
    if (ranks <= computing || options.tensor_parallel == ProfileOptions{}.tensor_parallel) continue;
    reject("--tensor-parallel {}: only {} ranks compute on this machine at once", ranks, computing);
  }
  if (options.device.is_cpu()) require_fast_numbers(options.dtype, has_native_bfloat16());
}

MachineMeasurement measure_machine(const ProfileOptions& options, Transport& transport, int rank,
                                   const std::function<void(const std::string&)>& report_progress) {
  const int cores = available_cores();
  const int computing = profile_ranks(options, cores).computing;
  Lockstep ranks(transport, rank, computing);
  MachineMeasurement report;
  MachineProfile& machine = report.machine;
  machine.name = host_name();
  machine.sources = {"chimera profile: " + machine_line()};
  machine.cores = cores;
  machine.threads = options.threads;
  machine.workers_per_node = kMaxLocalWorkers;
  // Per worker: the planner compares it with the memory of one rank.
  machine.memory_bytes = memory_of_host() / computing;

  Items items = make_items(options, ranks);
  report_progress("links");
  report.links = measure_quiet_links(ranks, 0.15 * options.seconds, machine);
  machine.busy_delay = measure_busy_delay(ranks, 0.05 * options.seconds);
  report_progress("host");
  machine.op_overhead = measure_op_overhead(ranks, kPairGroup, 0.05 * options.seconds);
  machine.step_overhead = measure_step_overhead(ranks);
  machine.optimizer_seconds =
      measure_optimizer(ranks, kPairGroup, largest_stage(items), options.threads, 0.05 * options.seconds);
  machine.matrix_flops = measure_matrix_flops(ranks, options.threads, 0.05 * options.seconds);
  report_progress("contention");
  measure_contention(ranks, 0.1 * options.seconds, options, items, machine);
  // Only now: the measurements above take all items for whole layers.
  add_split_items(options, ranks, items);
  report.rounds = measure_layers(ranks, options, items, 0.6 * options.seconds, machine.core_imbalance, report_progress);
  for (Item& item : items) machine.layers.push_back(times_of(ranks, options, item));
  machine.op_sum = op_sums_of(ranks, items);
  return report;
}

MachineProfile remeasure_links(Transport& transport, const ProfileOptions& options, int rank, MachineProfile machine) {
  Lockstep ranks(transport, rank, profile_ranks(options, available_cores()).computing);
  Items items = make_items(options, ranks);
  (void)measure_quiet_links(ranks, 0.15 * options.seconds, machine);
  measure_contention(ranks, 0.1 * options.seconds, options, items, machine);
  return machine;
}

std::vector<LayerTimes> measure_device_layers(const ProfileOptions& options, Transport& transport, int rank,
                                              int computing) {
  Lockstep ranks(transport, rank, computing);
  Items items = make_items(options, ranks);
  double imbalance = 0;
  (void)measure_layers(ranks, options, items, options.seconds, imbalance, [](const std::string& /*progress*/) {});
  std::vector<LayerTimes> layers;
  for (Item& item : items) layers.push_back(times_of(ranks, options, item));
  return layers;
}

std::string to_text(const std::vector<LayerTimes>& layers) {
  std::string text = fmt::format("{:<12} {:<13} {:>5} {:>11} {:>11} {:>11} {:>11} {:>8}\n", "model", "layer", "b",
                                 "forward", "input", "weights", "recompute", "+- %");
  for (const LayerTimes& layer : layers)
    for (const LayerTime& time : layer.times) text += row(layer, time);
  return text;
}

std::string to_text(const MachineMeasurement& report) {
  const MachineProfile& machine = report.machine;
  std::string text = machine.sources.front() + "\n";
  text += fmt::format("{}; medians over them, of {} at once, milliseconds of one layer\n\n",
                      counted(report.rounds, "round"), counted(machine.cores / machine.threads, "core"));
  text += to_text(machine.layers);
  const LinkTimes& messages = machine.point_to_point.within_node;
  const LinkTimes& sums = machine.all_reduce.within_node;
  text += "\n" + link_line("messages", messages) + link_line("sums", sums) +
          regression_errors_of(report.links, messages, sums);
  if (machine.op_sum != LinkTimes{}) text += link_line("sums inside ops", machine.op_sum);
  text += fmt::format("busy cores         delay a message by {:.1f} us\n", 1e6 * machine.busy_delay);
  text += fmt::format("slowest core       {:.1f} % over their mean\n", 100 * machine.core_imbalance);
  const LinkTimes& copy = machine.message_copy;
  text += fmt::format("message copies     take {:.1f} us and {:.3f} ns a byte of each end's core\n", 1e6 * copy.alpha,
                      1e9 * copy.beta);
  text += fmt::format("shared cores       {:.1f} % more for an op, beside another worker's on its core\n",
                      100 * machine.core_sharing);
  const Contention& contention = machine.contention;
  text += fmt::format(
      "contention         ops beside a sum {:+.0f} %, a sum beside ops {:+.0f} %, two transfers at once {:+.0f} %, "
      "a sum with the next one under way {:+.0f} %\n",
      100 * contention.ops_by_sums, 100 * contention.sums_by_ops, 100 * contention.transfers,
      -100 * contention.sums_overlap);
  text += fmt::format("idle cores         an op alone takes {:.1f} % less time than while all cores compute\n",
                      100 * contention.idle_gain * idle_share(1, machine.cores / machine.threads));
  for (const auto& [type, flops] : machine.matrix_flops)
    text += fmt::format("products of {:<8}  {:.1f} GFLOP/s a worker\n", to_text(type), 1e-9 * flops);
  text += fmt::format("optimizer {:.3f} ns a parameter, host {:.1f} us an op and {:.1f} us a step\n",
                      1e9 * machine.optimizer_seconds, 1e6 * machine.op_overhead, 1e6 * machine.step_overhead);
  return text;
}

}  // namespace chimera

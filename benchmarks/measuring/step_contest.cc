#include "measuring/step_contest.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>
#include <optional>

#include "bench/statistics.h"
#include "core/error.h"
#include "core/random.h"
#include "plan/layer_times.h"
#include "train/loop/trainer.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/threads/thread_transport.h"

namespace chimera {

SpeedGauge::SpeedGauge(Lockstep& ranks, const std::vector<GaugedBlocks>& blocks) : ranks_(ranks) {
  for (const GaugedBlocks& each : blocks) {
    TimedLayers layers;
    layers.model = find_model(each.model);
    layers.sequence = each.sequence;
    items_.push_back({LayerTimer(layers), layers.model, each.micro_batch_size, each.sequence});
  }
}

double SpeedGauge::seconds() {
  ranks_.barrier();
  const double start = monotonic_seconds();
  if (ranks_.computes()) {
    for (Item& item : items_) (void)item.bench.run(item.micro_batch_size, /*threads=*/1);
  }
  double seconds = monotonic_seconds() - start;
  ranks_.average({&seconds, 1});
  return seconds;
}

double SpeedGauge::seconds_on(const MachineProfile& machine) const {
  double seconds = 0;
  for (const Item& item : items_) {
    const LayerTime time = layer_time(machine, item.model, LayerKind::Block,
                                      {.micro_batch_size = item.micro_batch_size, .sequence = item.sequence});
    const double pass = time.forward + time.input_gradient + time.weight_gradient;
    // Regular, and recomputed
    seconds += static_cast<double>(item.bench.layers()) * (2 * pass + time.recompute);
  }
  return seconds;
}

double median_gauge(const std::vector<std::vector<GaugedTime>>& times) {
  std::vector<double> gauges;
  for (const auto& run : times) {
    for (const GaugedTime& time : run) gauges.push_back(time.gauge);
  }
  return spread_of(gauges).median;
}

MachineProfile on_slower_processor(MachineProfile machine, double factor) {
  for (LayerTimes& layer : machine.layers) {
    for (LayerTime& time : layer.times) {
      for (double* part : {&time.forward, &time.input_gradient, &time.weight_gradient, &time.recompute})
        *part *= factor;
    }
  }
  for (LinkTimes* link :
       {&machine.point_to_point.within_node, &machine.point_to_point.between_nodes, &machine.all_reduce.within_node,
        &machine.all_reduce.between_nodes, &machine.op_sum, &machine.message_copy, &machine.node_message_copy}) {
    link->alpha *= factor;
    link->beta *= factor;
  }
  for (double* seconds : {&machine.optimizer_seconds, &machine.op_overhead, &machine.step_overhead}) *seconds *= factor;
  return machine;
}

std::vector<std::vector<double>> at_median_speed(const std::vector<std::vector<GaugedTime>>& times) {
  const double usual = median_gauge(times);
  std::vector<std::vector<double>> scaled;
  for (const auto& run : times) {
    auto& seconds = scaled.emplace_back();
    for (const GaugedTime& time : run) seconds.push_back(time.seconds * usual / time.gauge);
  }
  return scaled;
}

namespace {

bool on_threads(const TrainOptions& options) { return options.device.transport == TransportKind::Threads; }

constexpr std::size_t kShift = 7;  // rotation of the order per round

std::vector<std::size_t> shuffled(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const CounterRandom random(1, "contest");
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
  return order;
}

/// Returns how many steps fit in rank 0's turn.
std::size_t steps_of_turn(Lockstep& ranks, double seconds) {
  constexpr double kTurn = 0.2;
  constexpr double kMax = 9;
  double steps = ranks.rank() == 0 ? std::clamp(std::floor(kTurn / seconds), 1.0, kMax) : 0;
  ranks.transport().all_sum({&steps, 1});
  return static_cast<std::size_t>(steps);
}

int threads_of(const Job& job) { return static_cast<int>(std::max<std::int64_t>(1, job.options.device.threads)); }

}  // namespace

/// A rank of a run, or all as threads.
class StepContest::Entrant {
 public:
  explicit Entrant(const TrainOptions& options) : job_(prepare_job(options)) {}
  virtual ~Entrant() = default;
  virtual void step() = 0;

 protected:
  static void step_of(std::optional<Trainer>& trainer, const Job& job, RankId rank, Transport& transport,
                      std::int64_t step) {
    at::set_num_threads(threads_of(job));
    if (!trainer) trainer.emplace(job, rank, transport);
    (void)trainer->train_step(step);
  }

  Job job_;
  std::int64_t steps_ = 0;
};

class StepContest::Processes : public Entrant {
 public:
  Processes(const TrainOptions& options, int rank, const std::string& store, bool share_memory,
            const std::shared_ptr<gloo::transport::Device>& device)
      : Entrant(options), rank_(rank) {
    const auto ranks = static_cast<int>(job_.num_ranks());
    transport_ = connect_gloo({.rank = rank,
                               .world_size = ranks,
                               .rendezvous = file_rendezvous(store),
                               .groups = job_.rank_groups(),
                               .share_memory = share_memory,
                               .device = device});
  }
  void step() override { step_of(trainer_, job_, RankId(rank_), *transport_, steps_++); }

 private:
  int rank_;
  std::unique_ptr<Transport> transport_;
  std::optional<Trainer> trainer_;
};

class StepContest::Threads : public Entrant {
 public:
  Threads(const TrainOptions& options, RankThreads& threads)
      : Entrant(options),
        threads_(threads),
        hub_(static_cast<int>(job_.num_ranks()), job_.rank_groups()),
        trainers_(static_cast<std::size_t>(job_.num_ranks())) {
    for (std::int64_t r = 0; r < job_.num_ranks(); ++r) transports_.push_back(hub_.transport(RankId(r)));
  }

  void step() override {
    const auto failure = threads_.run(
        static_cast<int>(job_.num_ranks()),
        [this](RankId rank) { step_of(trainers_[rank.index()], job_, rank, *transports_[rank.index()], steps_); },
        [this](const std::string& why) { hub_.close(why); });
    if (failure) std::rethrow_exception(failure->error);
    ++steps_;
  }

 private:
  RankThreads& threads_;
  ThreadHub hub_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::optional<Trainer>> trainers_;
};

int StepContest::ranks_for(const std::vector<ContestRun>& runs, bool as_threads) {
  std::int64_t most = 1;
  for (const auto& [run, _] : runs) {
    if (on_threads(run) == as_threads) most = std::max(most, resolve_job(run).num_ranks());
  }
  return static_cast<int>(most);
}

StepContest::StepContest(Lockstep& ranks, int world_size, SpeedGauge& gauge, const std::vector<ContestRun>& runs,
                         const std::string& folder)
    : ranks_(ranks), gauge_(gauge), order_(shuffled(runs.size())), steps_(runs.size(), 1), times_(runs.size()) {
  const int rank = ranks.rank();
  const auto device = gloo_device();
  if (rank == 0) threads_ = std::make_unique<RankThreads>(ranks_for(runs, /*as_threads=*/true));
  for (std::size_t k = 0; k < runs.size(); ++k) {
    auto& entrant = entrants_.emplace_back();
    const TrainOptions& run = runs[k].options;
    const auto needed = static_cast<int>(resolve_job(run).num_ranks());
    if (on_threads(run)) {
      if (rank != 0) continue;
      entrant = std::make_unique<Threads>(run, *threads_);
    } else if (needed > world_size) {
      throw ConfigError(fmt::format("a run needs {} processes, but only {} were started", needed, world_size));
    } else if (rank < needed) {
      entrant =
          std::make_unique<Processes>(run, rank, fmt::format("{}-store-{}", folder, k), runs[k].share_memory, device);
    }
  }
}

StepContest::~StepContest() = default;

void StepContest::round() {
  const std::size_t count = entrants_.size();
  double before = gauge_.seconds();
  for (std::size_t turn = 0; turn < count; ++turn) {
    const std::size_t k = order_[(turn + rounds_ * kShift) % count];
    ranks_.barrier();
    std::vector<double> seconds(entrants_[k] ? steps_[k] : 0);
    if (entrants_[k]) entrants_[k]->step();
    for (double& each : seconds) {
      const double start = monotonic_seconds();
      entrants_[k]->step();
      each = monotonic_seconds() - start;
    }
    const double after = gauge_.seconds();
    const double median = seconds.empty() ? 0 : spread_of(seconds).median;
    if (rounds_ == 0) steps_[k] = steps_of_turn(ranks_, median);
    times_[k].push_back({median, (before + after) / 2});
    before = after;
  }
  ++rounds_;
}

}  // namespace chimera

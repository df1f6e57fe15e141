#include "profile/measure_contention.h"

#include <ATen/ATen.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <ctime>
#include <memory>
#include <vector>

#include "bench/statistics.h"
#include "model/parameter_group.h"

namespace chimera {
namespace {

constexpr int kPair = 2;
constexpr double kMostBytesBesideOps = 256 << 20;
constexpr double kMostSaved = 0.9;  // fraction of a time

double process_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median_of(const std::vector<double>& values) { return values.empty() ? 0 : spread_of(values).median; }

/// Returns the average of ranks 0 and 1 on all ranks.
double mean_of_pair(Lockstep& ranks, double value) {
  double sum = ranks.rank() < kPair ? value / kPair : 0;
  ranks.transport().all_sum({&sum, 1});
  return sum;
}

double seconds_of_call(const OpWork& work) {
  const double start = monotonic_seconds();
  work();
  return monotonic_seconds() - start;
}

class SumBesideOps {
 public:
  SumBesideOps(Lockstep& ranks, ParameterGroupId group, std::int64_t elements, const OpWork& compute)
      : ranks_(ranks), group_(group), gradients_(shared_zeros(elements, at::kFloat)), compute_(compute) {}

  OverlapTimes round() {
    OverlapTimes times;
    ranks_.meet();
    times.ops_alone = seconds_of_call(compute_);
    ranks_.meet();
    times.sum_alone = seconds_of_call([this] { (void)start()->wait(); });
    ranks_.meet();
    const double begin = monotonic_seconds();
    const auto ended = std::make_shared<std::atomic<double>>(0);
    const auto sum = start();
    sum->call_when_done([ended] { ended->store(monotonic_seconds()); });
    compute_();
    times.ops = monotonic_seconds() - begin;
    (void)sum->wait();
    const double waited = monotonic_seconds();
    times.sum = (ended->load() > 0 ? ended->load() : waited) - begin;
    return times;
  }

 private:
  std::unique_ptr<Pending> start() { return ranks_.transport().start_all_reduce(group_, gradients_); }

  Lockstep& ranks_;
  ParameterGroupId group_;
  at::Tensor gradients_;
  const OpWork& compute_;
};

/// Exchanges messages with the peer while both compute.
class Exchange {
 public:
  Exchange(Lockstep& ranks, const OpWork& compute) : ranks_(ranks), compute_(compute) {}

  double round(std::int64_t bytes) {
    const double alone = cpu_seconds(0, bytes);
    return std::max(0.0, cpu_seconds(kMessages, bytes) - alone) / (2 * kMessages);
  }

 private:
  static constexpr int kMessages = 8;  // in each direction

  double cpu_seconds(int messages, std::int64_t bytes) {
    const at::Tensor tensor = at::ones({bytes / 4}, at::kFloat);
    const TensorSpec spec{tensor.sizes().vec(), tensor.scalar_type()};
    const RankId peer(1 - ranks_.rank());
    std::vector<std::unique_ptr<Pending>> pending;
    ranks_.meet();
    const double start = process_seconds();
    for (int i = 0; i < messages; ++i)
      pending.push_back(ranks_.transport().post_receive(peer, spec, {turn_ + i, Op{}}));
    for (int i = 0; i < messages; ++i)
      pending.push_back(ranks_.transport().start_send(peer, tensor, {turn_ + i, Op{}}));
    compute_();
    for (const auto& each : pending) (void)each->wait();
    turn_ += messages;
    return process_seconds() - start;
  }

  Lockstep& ranks_;
  const OpWork& compute_;
  std::int64_t turn_ = 0;
};

/// Rank 0 sends messages to the next ranks, which reply.
class Fan {
 public:
  explicit Fan(Lockstep& ranks) : ranks_(ranks) {}

  double round(int receivers, std::int64_t bytes) {
    ranks_.meet();
    const at::Tensor tensor = at::ones({bytes / 4}, at::kFloat);
    const double start = monotonic_seconds();
    if (ranks_.rank() == 0) {
      send_and_hear(receivers, tensor);
    } else if (ranks_.rank() <= receivers) {
      answer(tensor);
    }
    ++turn_;
    return monotonic_seconds() - start;
  }

 private:
  [[nodiscard]] MessageTag tag() const { return {turn_, Op{}}; }
  static TensorSpec spec_of(const at::Tensor& tensor) { return {tensor.sizes().vec(), tensor.scalar_type()}; }

  void send_and_hear(int receivers, const at::Tensor& tensor) {
    std::vector<std::unique_ptr<Pending>> pending;
    for (int to = 1; to <= receivers; ++to)
      pending.push_back(ranks_.transport().post_receive(RankId(to), spec_of(word_), tag()));
    for (int to = 1; to <= receivers; ++to) pending.push_back(ranks_.transport().start_send(RankId(to), tensor, tag()));
    for (const auto& each : pending) (void)each->wait();
  }

  void answer(const at::Tensor& tensor) {
    (void)ranks_.transport().post_receive(RankId(0), spec_of(tensor), tag())->wait();
    (void)ranks_.transport().start_send(RankId(0), word_, tag())->wait();
  }

  Lockstep& ranks_;
  at::Tensor word_ = at::ones({1}, at::kFloat);
  std::int64_t turn_ = 0;
};

class TwoSums {
 public:
  TwoSums(Lockstep& ranks, const std::array<ParameterGroupId, 2>& groups, std::int64_t bytes)
      : ranks_(ranks),
        groups_(groups),
        gradients_{shared_zeros(bytes / 4, at::kFloat), shared_zeros(bytes / 4, at::kFloat)} {}

  /// Returns the saved share of an all-reduce's time.
  double round() {
    const double alone = seconds_of(1);
    return 2 - seconds_of(2) / alone;
  }

 private:
  double seconds_of(std::size_t count) {
    ranks_.meet();
    const double start = monotonic_seconds();
    std::vector<std::unique_ptr<Pending>> sums;
    for (std::size_t i = 0; i < count; ++i)
      sums.push_back(ranks_.transport().start_all_reduce(groups_[i], gradients_[i]));
    for (const auto& sum : sums) (void)sum->wait();
    return monotonic_seconds() - start;
  }

  Lockstep& ranks_;
  std::array<ParameterGroupId, 2> groups_;
  std::array<at::Tensor, 2> gradients_;
};

class Pinned {
 public:
  explicit Pinned(int core) {
    CPU_ZERO(&all_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    is_pinned_ = ::sched_getaffinity(0, sizeof all_, &all_) == 0 && ::sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~Pinned() {
    if (is_pinned_) (void)::sched_setaffinity(0, sizeof all_, &all_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t all_{};
  bool is_pinned_ = false;
};

/// Runs ranks 0 and 1 on the same core, first in turn, then together.
class TurnsOnOneCore {
 public:
  TurnsOnOneCore(Lockstep& ranks, const OpWork& compute) : ranks_(ranks), compute_(compute) {}

  double round(int core) {
    const Pinned pinned(core);
    double alone = 0;
    for (int turn = 0; turn < kPair; ++turn) {
      ranks_.meet();
      if (ranks_.rank() == turn) alone = cpu_seconds();
    }
    ranks_.meet();
    return std::max(0.0, cpu_seconds() / alone - 1);
  }

 private:
  static constexpr double kLeast = 0.03;  // many time slices

  double cpu_seconds() {
    const Stopwatch watch;
    int calls = 0;
    do {
      compute_();
      ++calls;
    } while (watch.elapsed().cpu_seconds < kLeast);
    return watch.elapsed().cpu_seconds / calls;
  }

  Lockstep& ranks_;
  const OpWork& compute_;
};

int core_of_first(Lockstep& ranks) {
  double core = ranks.rank() == 0 ? std::max(0, ::sched_getcpu()) : 0;
  ranks.transport().all_sum({&core, 1});
  return static_cast<int>(core);
}

}  // namespace

Contention slowdown_of(const OverlapTimes& times) {
  const double both = std::min(times.ops, times.sum);
  // Progress at the earlier end, in seconds alone
  const double ops_done = times.ops_alone - (times.ops - both);
  const double sum_done = times.sum_alone - (times.sum - both);
  const auto share = [both](double done) { return done > 0 ? std::max(0.0, both / done - 1) : 0.0; };
  return {.ops_by_sums = share(ops_done), .sums_by_ops = share(sum_done)};
}

Contention measure_all_reduce_overlap(Lockstep& ranks, ParameterGroupId group, const LinkTimes& sums,
                                      const OpWork& compute, double seconds) {
  double alone = ranks.computes() ? seconds_of_call(compute) : 0;
  ranks.average({&alone, 1});
  std::array<double, 2> sum = {ranks.rank() == 0 ? sums.alpha : 0, ranks.rank() == 0 ? sums.beta : 0};
  ranks.transport().all_sum(sum);  // broadcasts from rank 0
  const double bytes = sum[1] > 0 ? std::clamp(2 * alone / sum[1], 4096.0, kMostBytesBesideOps) : kMostBytesBesideOps;
  std::unique_ptr<SumBesideOps> beside;
  if (ranks.rank() < kPair)
    beside = std::make_unique<SumBesideOps>(ranks, group, static_cast<std::int64_t>(bytes / 4), compute);
  std::vector<double> ops;
  std::vector<double> summed;
  const double deadline = monotonic_seconds() + seconds;
  for (std::int64_t round = 0; ranks.wants_round(round, deadline); ++round) {
    if (beside) {
      const Contention slowed = slowdown_of(beside->round());
      if (round == 0) continue;  // the first touches memory
      ops.push_back(slowed.ops_by_sums);
      summed.push_back(slowed.sums_by_ops);
      continue;
    }
    for (int part = 0; part < 3; ++part) {
      ranks.meet();
      if (ranks.computes() && part != 1) compute();
    }
  }
  return {.ops_by_sums = mean_of_pair(ranks, median_of(ops)), .sums_by_ops = mean_of_pair(ranks, median_of(summed))};
}

LinkTimes measure_message_copies(Lockstep& ranks, const OpWork& compute, double seconds, std::int64_t largest) {
  const std::array<std::int64_t, 4> sizes = {largest / 256, largest / 16, largest / 4, largest};
  std::array<std::vector<double>, sizes.size()> times;
  Exchange exchange(ranks, compute);
  const double deadline = monotonic_seconds() + seconds;
  for (std::int64_t round = 0; ranks.wants_round(round, deadline); ++round) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (ranks.rank() < kPair) {
        const double each = exchange.round(sizes[i]);
        if (round > 0) times[i].push_back(each);
        continue;
      }
      for (int part = 0; part < 2; ++part) {
        ranks.meet();
        if (ranks.computes()) compute();
      }
    }
  }
  std::vector<TimedSize> points;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double each = mean_of_pair(ranks, median_of(times[i]));
    if (each > 0) points.push_back({static_cast<double>(sizes[i]), each});
  }
  if (points.size() < 2) return {};
  const Line line = regress_line(points);
  return {line.alpha, line.beta};
}

double measure_transfers_at_once(Lockstep& ranks, double seconds) {
  constexpr std::int64_t kSmall = 1 << 10;
  constexpr std::int64_t kLarge = 4 << 20;
  Fan fan(ranks);
  std::vector<double> shares;
  const double deadline = monotonic_seconds() + seconds;
  for (std::int64_t round = 0; ranks.wants_round(round, deadline); ++round) {
    const double answer = fan.round(1, kSmall);
    const double one = fan.round(1, kLarge) - answer;
    const double two = fan.round(2, kLarge) - answer;
    if (round > 0 && one > 0) shares.push_back(std::max(0.0, two / one - 1));
  }
  double share = ranks.rank() == 0 ? median_of(shares) : 0;
  ranks.transport().all_sum({&share, 1});
  return share;
}

double measure_sums_overlap(Lockstep& ranks, const std::array<ParameterGroupId, 2>& groups, double seconds,
                            std::int64_t bytes) {
  std::unique_ptr<TwoSums> sums;
  if (ranks.rank() < kPair) sums = std::make_unique<TwoSums>(ranks, groups, bytes);
  std::vector<double> shares;
  const double deadline = monotonic_seconds() + seconds;
  for (std::int64_t round = 0; ranks.wants_round(round, deadline); ++round) {
    if (sums) {
      const double share = sums->round();
      if (round > 0) shares.push_back(share);
      continue;
    }
    for (int part = 0; part < 2; ++part) ranks.meet();
  }
  return mean_of_pair(ranks, std::clamp(median_of(shares), 0.0, kMostSaved));
}

double measure_idle_gain(Lockstep& ranks, const OpWork& compute, std::int64_t threads, double seconds) {
  if (ranks.computing() < kPair) return 0;
  const auto timed = [&] {
    const Stopwatch watch;
    compute();
    return seconds_of(watch.elapsed(), threads);
  };
  double together = 0;
  double alone = 0;
  std::vector<double> saved;
  const double deadline = monotonic_seconds() + seconds;
  for (std::int64_t round = 0; ranks.wants_round(round, deadline); ++round) {
    ranks.meet();
    if (ranks.computes()) together = timed();
    for (int turn = 0; turn < kPair; ++turn) {
      ranks.meet();
      if (ranks.rank() == turn) alone = timed();
    }
    if (round > 0 && together > 0) saved.push_back(1 - alone / together);
  }
  const double idle = idle_share(1, ranks.computing());
  return mean_of_pair(ranks, std::clamp(median_of(saved) / idle, 0.0, kMostSaved));
}

double measure_core_sharing(Lockstep& ranks, const OpWork& compute, double seconds) {
  const int core = core_of_first(ranks);
  TurnsOnOneCore turns(ranks, compute);
  std::vector<double> shares;
  const double deadline = monotonic_seconds() + seconds;
  for (std::int64_t round = 0; ranks.wants_round(round, deadline); ++round) {
    if (ranks.rank() < kPair) {
      const double share = turns.round(core);
      if (round > 0) shares.push_back(share);
      continue;
    }
    for (int part = 0; part < kPair + 1; ++part) ranks.meet();
  }
  return mean_of_pair(ranks, median_of(shares));
}

}  // namespace chimera

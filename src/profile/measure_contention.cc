#include "profile/measure_contention.h"

#include <ATen/ATen.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <memory>
#include <optional>

#include "bench/statistics.h"
#include "model/parameter_group.h"

namespace chimera {
namespace {

constexpr int kPair = 2;
constexpr double kMaxBytesBesideOps = 256 << 20;
constexpr double kMaxSaved = 0.9;  // fraction of a time

using Operations = std::vector<std::unique_ptr<Pending>>;

bool is_in_pair(const Lockstep& ranks) { return ranks.rank() < kPair; }

/// Ranks 0 and 1 measure. The other computing ranks run the same ops at the same time, so that caches and memory are as
/// busy as in training. All ranks call barrier() equally often, which keeps a measurement correct on every rank.
bool runs_ops(const Lockstep& ranks) { return is_in_pair(ranks) || ranks.computes(); }

double process_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Returns the average of ranks 0 and 1 on all ranks.
double mean_of_pair(Lockstep& ranks, double value) {
  double sum = is_in_pair(ranks) ? value / kPair : 0;
  // Ranks outside of the pair add zero, and all get the result.
  ranks.transport().all_sum({&sum, 1});
  return sum;
}

double seconds_of_call(const OpWork& work) {
  const double start = monotonic_seconds();
  work();
  return monotonic_seconds() - start;
}

void wait_for(const Operations& operations) {
  for (const auto& each : operations) (void)each->wait();
}

TensorSpec spec_of(const at::Tensor& tensor) { return {tensor.sizes().vec(), tensor.scalar_type()}; }

/// Times an all-reduce that starts with the ops. Its end is known only if the transport reports it; else it is noticed
/// after the ops.
void time_together(const OpWork& compute, const std::function<std::unique_ptr<Pending>()>& start_sum,
                   OverlapTimes& times) {
  const double begin = monotonic_seconds();
  const auto ended = std::make_shared<std::atomic<double>>(0);
  const auto sum = start_sum();
  // The callback may come after this function has returned, so it owns the number.
  sum->call_when_done([ended] { ended->store(monotonic_seconds()); });
  compute();
  times.ops = monotonic_seconds() - begin;
  (void)sum->wait();
  const double waited = monotonic_seconds();
  times.sum = (ended->load() > 0 ? ended->load() : waited) - begin;
}

/// Returns CPU seconds of ops beside `messages` to and from the other rank of the pair. `turn` numbers the messages.
double cpu_seconds_beside(Lockstep& ranks, const OpWork& compute, int messages, std::int64_t bytes,
                          std::int64_t& turn) {
  // An element of float32 has 4 bytes.
  const at::Tensor tensor = at::ones({bytes / 4}, at::kFloat);
  const RankId peer(1 - ranks.rank());
  Operations operations;
  ranks.barrier();
  const double start = process_seconds();
  // The others only compute beside them.
  if (!is_in_pair(ranks)) messages = 0;
  for (int i = 0; i < messages; ++i)
    operations.push_back(ranks.transport().post_receive(peer, spec_of(tensor), {turn + i, Op{}}));
  for (int i = 0; i < messages; ++i) operations.push_back(ranks.transport().start_send(peer, tensor, {turn + i, Op{}}));
  if (runs_ops(ranks)) compute();
  wait_for(operations);
  turn += messages;
  return process_seconds() - start;
}

/// Rank 0 sends to the next ranks, which reply with a word. Returns the seconds until all replies are back.
double seconds_of_fan(Lockstep& ranks, int receivers, std::int64_t bytes, std::int64_t turn) {
  const MessageTag tag{turn, Op{}};
  const at::Tensor word = at::ones({1}, at::kFloat);
  const at::Tensor tensor = at::ones({bytes / 4}, at::kFloat);
  Transport& transport = ranks.transport();
  ranks.barrier();
  const double start = monotonic_seconds();
  Operations operations;
  if (ranks.rank() == 0) {
    for (int to = 1; to <= receivers; ++to)
      operations.push_back(transport.post_receive(RankId(to), spec_of(word), tag));
    for (int to = 1; to <= receivers; ++to) operations.push_back(transport.start_send(RankId(to), tensor, tag));
  } else if (ranks.rank() <= receivers) {
    (void)transport.post_receive(RankId(0), spec_of(tensor), tag)->wait();
    operations.push_back(transport.start_send(RankId(0), word, tag));
  }
  wait_for(operations);
  return monotonic_seconds() - start;
}

/// Keeps the calling thread on one core until the end of the scope, if the system allows it.
class Pinned {
 public:
  explicit Pinned(int core) {
    (void)::sched_getaffinity(0, sizeof all_, &all_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    (void)::sched_setaffinity(0, sizeof one, &one);
  }
  ~Pinned() { (void)::sched_setaffinity(0, sizeof all_, &all_); }
  Pinned& operator=(Pinned&&) = delete;

 private:
  cpu_set_t all_{};
};

/// Returns CPU seconds of one call, over as many calls as take many time slices.
double cpu_seconds_of(const OpWork& work) {
  constexpr double kMin = 0.03;
  // CPU time is counted in time slices of the scheduler, which one call may not fill.
  const Stopwatch watch;
  int calls = 0;
  do {
    work();
    ++calls;
  } while (watch.elapsed().cpu_seconds < kMin);
  return watch.elapsed().cpu_seconds / calls;
}

}  // namespace

Contention slowdown_of(const OverlapTimes& times) {
  const double both = std::min(times.ops, times.sum);
  // Progress at the earlier end, in seconds alone. After this end, the other work runs alone and at full speed. So what
  // it had done before is its time alone minus the rest. If both took `both` seconds to do work of `done` seconds, the
  // slowdown is both / done - 1.
  const double ops_done = times.ops_alone - (times.ops - both);
  const double sum_done = times.sum_alone - (times.sum - both);
  const auto share = [both](double done) { return done > 0 ? std::max(0.0, both / done - 1) : 0.0; };
  return {.ops_by_sums = share(ops_done), .sums_by_ops = share(sum_done)};
}

Contention measure_all_reduce_overlap(Lockstep& ranks, ParameterGroupId group, const LinkTimes& sums,
                                      const OpWork& compute, double seconds) {
  double alone = ranks.computes() ? seconds_of_call(compute) : 0;
  ranks.average({&alone, 1});
  // The all-reduce must outlast the ops, so that they run beside it all the time.
  const double beta = ranks.broadcast(sums.beta);
  // Twice the time of the ops, by the measured beta.
  const double bytes = beta > 0 ? std::clamp(2 * alone / beta, 4096.0, kMaxBytesBesideOps) : kMaxBytesBesideOps;
  const at::Tensor gradients =
      is_in_pair(ranks) ? shared_zeros(static_cast<std::int64_t>(bytes / 4), at::kFloat) : at::Tensor();
  const auto start_sum = [&] { return ranks.transport().start_all_reduce(group, gradients); };
  std::vector<double> ops;
  std::vector<double> summed;
  ranks.repeat(seconds, [&](std::int64_t round) {
    OverlapTimes times;
    ranks.barrier();
    if (runs_ops(ranks)) times.ops_alone = seconds_of_call(compute);
    ranks.barrier();
    if (is_in_pair(ranks)) times.sum_alone = seconds_of_call([&] { (void)start_sum()->wait(); });
    ranks.barrier();
    if (is_in_pair(ranks))
      time_together(compute, start_sum, times);
    else if (ranks.computes())
      compute();
    if (round == 0) return;  // the first touches memory
    const Contention slowed = slowdown_of(times);
    ops.push_back(slowed.ops_by_sums);
    summed.push_back(slowed.sums_by_ops);
  });
  return {.ops_by_sums = mean_of_pair(ranks, spread_of(ops).median),
          .sums_by_ops = mean_of_pair(ranks, spread_of(summed).median)};
}

LinkTimes measure_message_copies(Lockstep& ranks, const OpWork& compute, double seconds, std::int64_t largest) {
  constexpr int kMessages = 8;  // in each direction
  // Several sizes, so that regress_line() can tell the cost of a message from the cost of its bytes.
  const std::array<std::int64_t, 4> sizes = {largest / 256, largest / 16, largest / 4, largest};
  std::array<std::vector<double>, sizes.size()> times;
  std::int64_t turn = 0;
  ranks.repeat(seconds, [&](std::int64_t round) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const double alone = cpu_seconds_beside(ranks, compute, 0, sizes[i], turn);
      const double beside = cpu_seconds_beside(ranks, compute, kMessages, sizes[i], turn);
      // Each rank sends and receives kMessages, and pays for both.
      if (round > 0) times[i].push_back(std::max(0.0, beside - alone) / (2 * kMessages));
    }
  });
  std::vector<TimedSize> points;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double each = mean_of_pair(ranks, spread_of(times[i]).median);
    if (each > 0) points.push_back({static_cast<double>(sizes[i]), each});
  }
  if (points.size() < 2) return {};
  const Line line = regress_line(points);
  return {line.alpha, line.beta};
}

double measure_transfers_at_once(Lockstep& ranks, double seconds) {
  constexpr std::int64_t kSmall = 1 << 10;
  constexpr std::int64_t kLarge = 4 << 20;
  std::int64_t turn = 0;
  std::vector<double> shares;
  ranks.repeat(seconds, [&](std::int64_t round) {
    // The reply and the fixed costs of a message do not belong to the transfer.
    const double answer = seconds_of_fan(ranks, 1, kSmall, turn++);
    const double one = seconds_of_fan(ranks, 1, kLarge, turn++) - answer;
    const double two = seconds_of_fan(ranks, 2, kLarge, turn++) - answer;
    if (round > 0 && one > 0) shares.push_back(std::max(0.0, two / one - 1));
  });
  return ranks.broadcast(spread_of(shares).median);
}

double measure_sums_overlap(Lockstep& ranks, const std::array<ParameterGroupId, 2>& groups, double seconds,
                            std::int64_t bytes) {
  std::vector<at::Tensor> gradients;
  while (is_in_pair(ranks) && gradients.size() < groups.size())
    gradients.push_back(shared_zeros(bytes / 4, at::kFloat));
  const auto seconds_of_sums = [&](std::size_t count) {
    ranks.barrier();
    const double start = monotonic_seconds();
    Operations sums;
    for (std::size_t i = 0; i < std::min(count, gradients.size()); ++i)
      sums.push_back(ranks.transport().start_all_reduce(groups[i], gradients[i]));
    wait_for(sums);
    return monotonic_seconds() - start;
  };
  std::vector<double> saved;  // shares of an all-reduce's time
  ranks.repeat(seconds, [&](std::int64_t round) {
    const double alone = seconds_of_sums(1);
    const double both = seconds_of_sums(2);
    if (round > 0) saved.push_back(2 - both / alone);
  });
  return mean_of_pair(ranks, std::clamp(spread_of(saved).median, 0.0, kMaxSaved));
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
  ranks.repeat(seconds, [&](std::int64_t round) {
    ranks.barrier();
    if (ranks.computes()) together = timed();
    for (int turn = 0; turn < kPair; ++turn) {
      ranks.barrier();
      if (ranks.rank() == turn) alone = timed();
    }
    if (round > 0 && together > 0) saved.push_back(1 - alone / together);
  });
  // One core was busy, so the saving is idle_gain times this share of idle cores.
  const double idle = idle_share(1, ranks.computing());
  return mean_of_pair(ranks, std::clamp(spread_of(saved).median / idle, 0.0, kMaxSaved));
}

double measure_core_sharing(Lockstep& ranks, const OpWork& compute, double seconds) {
  // Both ranks of the pair can run on the core of rank 0.
  const int core = static_cast<int>(ranks.broadcast(std::max(0, ::sched_getcpu())));
  std::vector<double> shares;
  ranks.repeat(seconds, [&](std::int64_t round) {
    std::optional<Pinned> pinned;
    if (is_in_pair(ranks)) pinned.emplace(core);
    double alone = 0;
    for (int turn = 0; turn < kPair; ++turn) {
      ranks.barrier();
      if (ranks.rank() == turn) alone = cpu_seconds_of(compute);
    }
    ranks.barrier();
    if (!is_in_pair(ranks)) return;
    const double together = cpu_seconds_of(compute);
    if (round > 0) shares.push_back(std::max(0.0, together / alone - 1));
  });
  return mean_of_pair(ranks, spread_of(shares).median);
}

}  // namespace chimera

#include "profile/link_bench.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "bench/statistics.h"
#include "model/shared_tensor.h"

namespace chimera {
namespace {

constexpr std::int64_t kSmallest = 1 << 10;
constexpr std::int64_t kLargest = 4 << 20;
// On a slow network there are few rounds, and what one has left under way holds up the first of the next.
constexpr std::int64_t kShort = 64 << 10;
constexpr int kTimesShort = 5;
constexpr double kMoment = 0.2;                 // seconds
constexpr std::int64_t kLargestSum = 64 << 20;  // gradients of stages, which no cache holds

using Times = std::map<std::int64_t, std::vector<double>>;  // by bytes

at::Tensor message_of(std::int64_t bytes) { return at::ones({bytes / 4}, at::kFloat); }

/// A tensor in memory of the kind in which training has its gradients.
at::Tensor gradients_of(std::int64_t bytes) { return shared_zeros(bytes / 4, at::kFloat); }

/// To rank 1 and back; returns the time of one way.
double ping_pong(Lockstep& ranks, const at::Tensor& tensor, std::int64_t round) {
  Transport& transport = ranks.transport();
  const RankId peer(1 - ranks.rank());
  const TensorSpec spec{tensor.sizes().vec(), tensor.scalar_type()};
  const MessageTag tag{round, Op{}};
  const auto receive = transport.post_receive(peer, spec, tag);
  const double start = monotonic_seconds();
  if (ranks.rank() == 1) receive->wait();
  const auto send = transport.start_send(peer, tensor, tag);
  if (ranks.rank() == 0) receive->wait();
  const double seconds = monotonic_seconds() - start;
  send->wait();
  return seconds / 2;
}

double sum(Lockstep& ranks, ParameterGroupId group, const at::Tensor& tensor) {
  const double start = monotonic_seconds();
  ranks.transport().start_all_reduce(group, tensor)->wait();
  return monotonic_seconds() - start;
}

std::vector<TimedSize> points_of(const Times& times, double Spread::*typical) {
  std::vector<TimedSize> points;
  for (const auto& [bytes, seconds] : times)
    points.push_back({static_cast<double>(bytes), spread_of(seconds).*typical});
  return points;
}

}  // namespace

LinkSamples measure_links(Lockstep& ranks, ParameterGroupId group, double seconds) {
  Times messages;
  Times sums;
  std::map<std::int64_t, at::Tensor> gradients;
  const at::Tensor word = message_of(kSmallest);
  for (std::int64_t bytes = kSmallest; bytes <= kLargestSum; bytes *= 2) gradients[bytes] = gradients_of(bytes);
  const auto measure = [&](std::int64_t bytes, std::int64_t round) {
    if (ranks.rank() > 1) return;
    for (int i = 0; i < (bytes <= kShort ? kTimesShort : 1); ++i) {
      const double both = sum(ranks, group, gradients[bytes]);
      if (round > 0) sums[bytes].push_back(both);  // the first round touches buffers
    }
    if (bytes > kLargest) return;
    (void)ping_pong(ranks, word, round);  // behind what the sum has left under way
    for (int i = 0; i < (bytes <= kShort ? kTimesShort : 1); ++i) {
      const double message = ping_pong(ranks, message_of(bytes), round);
      if (round > 0) messages[bytes].push_back(message);
    }
  };
  const double longest = std::max(kMoment, seconds / 4);
  const auto is_long = [&](std::int64_t bytes) {
    const double start = monotonic_seconds();
    measure(bytes, 0);
    return !ranks.agree(monotonic_seconds() - start < longest);
  };
  const double deadline = monotonic_seconds() + seconds;
  for (std::int64_t round = 0; ranks.go_on(round, deadline); ++round) {
    for (auto each = gradients.begin(); each != gradients.end(); ++each) {
      if (round > 0) {
        measure(each->first, round);
      } else if (is_long(each->first) && is_long(each->first) && each->first > kSmallest) {
        // Once may be another program's turn.
        gradients.erase(std::next(each), gradients.end());
      }
    }
  }
  return {points_of(messages, &Spread::low), points_of(sums, &Spread::median)};
}

double measure_busy_delay(Lockstep& ranks, double seconds) {
  constexpr int kMessages = 8;
  constexpr double kBusy = 0.05;
  const at::Tensor tensor = message_of(kSmallest);
  std::vector<double> idle;
  std::vector<double> busy;
  const double deadline = monotonic_seconds() + seconds;
  for (std::int64_t round = 0; ranks.go_on(round, deadline); ++round) {
    const bool quiet = round % 2 == 0;
    if (ranks.rank() > 1) {
      const double end = monotonic_seconds() + (quiet ? 0 : kBusy);
      while (monotonic_seconds() < end) continue;
      continue;
    }
    for (int i = 0; i < kMessages; ++i) {
      (quiet ? idle : busy).push_back(ping_pong(ranks, tensor, round * kMessages + i));
    }
  }
  const auto mean = [](const std::vector<double>& times) {
    return std::accumulate(times.begin(), times.end(), 0.0) /
           static_cast<double>(std::max<std::size_t>(1, times.size()));
  };
  return std::max(0.0, mean(busy) - mean(idle));
}

LinkTimes as_messages(const Line& line) { return {line.alpha, line.beta}; }

LinkTimes as_messages(const BurstLine& line) { return {line.line.alpha, line.line.beta, line.burst}; }

LinkTimes as_sums(const Line& line) { return {line.alpha / 2, line.beta}; }  // 2 log2(2) alpha + 2 (2 - 1) / 2 beta L

}  // namespace chimera

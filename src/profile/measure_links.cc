#include "profile/measure_links.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "bench/machine_line.h"
#include "model/parameter_group.h"
#include "profile/measure_contention.h"
#include "profile/measure_overheads.h"

namespace chimera {
namespace {

constexpr std::int64_t kSmallest = 1 << 10;
constexpr std::int64_t kLargest = 4 << 20;
// Repeated, because on slow networks leftover traffic delays the next round.
constexpr std::int64_t kShort = 64 << 10;
constexpr int kTimesShort = 5;
constexpr double kMoment = 0.2;                 // seconds
constexpr std::int64_t kLargestSum = 64 << 20;  // larger than caches

using Times = std::map<std::int64_t, std::vector<double>>;

at::Tensor message_of(std::int64_t bytes) { return at::ones({bytes / 4}, at::kFloat); }

/// Shared memory, as in training.
at::Tensor gradients_of(std::int64_t bytes) { return shared_zeros(bytes / 4, at::kFloat); }

/// Returns the one-way time.
double ping_pong(Lockstep& ranks, const at::Tensor& tensor, std::int64_t round) {
  Transport& transport = ranks.transport();
  const RankId peer(1 - ranks.rank());
  const TensorSpec spec{tensor.sizes().vec(), tensor.scalar_type()};
  const MessageTag tag{round, Op{}};
  const auto receive = transport.post_receive(peer, spec, tag);
  const double start = monotonic_seconds();
  // Rank 0 sends first, rank 1 answers; both have posted their receive before.
  if (ranks.rank() == 1) receive->wait();
  const auto send = transport.start_send(peer, tensor, tag);
  if (ranks.rank() == 0) receive->wait();
  const double seconds = monotonic_seconds() - start;
  send->wait();
  // There and back.
  return seconds / 2;
}

double sum(Lockstep& ranks, ParameterGroupId group, const at::Tensor& tensor) {
  const double start = monotonic_seconds();
  ranks.transport().start_all_reduce(group, tensor)->wait();
  return monotonic_seconds() - start;
}

/// Reduces all rounds of a size to one typical time.
std::vector<TimedSize> points_of(const Times& times, double Spread::*typical) {
  std::vector<TimedSize> points;
  for (const auto& [bytes, seconds] : times)
    points.push_back({static_cast<double>(bytes), spread_of(seconds).*typical});
  return without_delays(std::move(points));
}

std::string fit_line_of(const char* name, const std::vector<TimedSize>& points, const LinkTimes& link, double alphas) {
  std::string text = fmt::format("{:<16}", name);
  for (const auto& [bytes, seconds] : points) {
    // An all-reduce over two ranks takes alpha twice.
    const double fitted = alphas * link.alpha + link.beta * std::max(0.0, bytes - link.burst);
    text += fmt::format(" {:.0f}K {:+.0f} %", bytes / 1024, 100 * (fitted / seconds - 1));
  }
  return text + "\n";
}

/// Work for links between hosts, where no model is loaded.
OpWork multiply_matrices() {
  constexpr std::int64_t kRows = 512;
  return [one = at::ones({kRows, kRows})] { (void)at::mm(one, one); };
}

/// Returns the bytes that a link transfers in that time, so that slow networks get short messages.
std::int64_t bytes_in(double seconds, double beta, double most) {
  constexpr double kMin = 4096;
  // Without a measured beta, more bytes took no longer, so any size fits.
  return static_cast<std::int64_t>(beta > 0 ? std::clamp(seconds / beta, kMin, most) : most);
}

}  // namespace

LinkSamples measure_links(Lockstep& ranks, ParameterGroupId group, double seconds) {
  Times messages;
  Times sums;
  std::map<std::int64_t, at::Tensor> gradients;
  const at::Tensor word = message_of(kSmallest);
  // Allocated once, as in training, where each stage sums the same memory in every step.
  for (std::int64_t bytes = kSmallest; bytes <= kLargestSum; bytes *= 2) gradients[bytes] = gradients_of(bytes);
  const auto measure = [&](std::int64_t bytes, std::int64_t round) {
    if (ranks.rank() > 1) return;
    for (int i = 0; i < (bytes <= kShort ? kTimesShort : 1); ++i) {
      const double both = sum(ranks, group, gradients[bytes]);
      if (round > 0) sums[bytes].push_back(both);
    }
    if (bytes > kLargest) return;
    (void)ping_pong(ranks, word, round);  // waits for traffic of the all-reduce
    for (int i = 0; i < (bytes <= kShort ? kTimesShort : 1); ++i) {
      const double message = ping_pong(ranks, message_of(bytes), round);
      if (round > 0) messages[bytes].push_back(message);
    }
  };
  // Round 0 finds the sizes that fit in the time: a size that is too long twice ends the list.
  const double longest = std::max(kMoment, seconds / 4);
  const auto is_long = [&](std::int64_t bytes) {
    const double start = monotonic_seconds();
    measure(bytes, 0);
    return ranks.broadcast(monotonic_seconds() - start) >= longest;
  };
  ranks.repeat(seconds, [&](std::int64_t round) {
    for (auto each = gradients.begin(); each != gradients.end(); ++each) {
      if (round > 0) {
        measure(each->first, round);
      } else if (is_long(each->first) && is_long(each->first) && each->first > kSmallest) {
        // Repeated, because another program may delay one. Sizes behind it would take longer still.
        gradients.erase(std::next(each), gradients.end());
      }
    }
  });
  // Other programs only lengthen a message. In a sum, several threads take turns, so its usual time is the median.
  return {points_of(messages, &Spread::low), points_of(sums, &Spread::median)};
}

double measure_busy_delay(Lockstep& ranks, double seconds) {
  constexpr int kMessages = 8;
  constexpr double kBusy = 0.05;
  const at::Tensor tensor = message_of(kSmallest);
  std::vector<double> idle;
  std::vector<double> busy;
  ranks.repeat(seconds, [&](std::int64_t round) {
    // Even rounds measure with idle cores, odd rounds with busy ones, so that drifts of the machine affect both.
    const bool quiet = round % 2 == 0;
    const double end = monotonic_seconds() + (quiet ? 0 : kBusy);
    while (ranks.rank() > 1 && monotonic_seconds() < end) continue;
    for (int i = 0; ranks.rank() <= 1 && i < kMessages; ++i)
      (quiet ? idle : busy).push_back(ping_pong(ranks, tensor, round * kMessages + i));
  });
  const auto mean = [](const std::vector<double>& times) {
    return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  };
  return ranks.rank() > 1 ? 0 : std::max(0.0, mean(busy) - mean(idle));
}

LinkTimes to_message_times(const Line& line) { return {line.alpha, line.beta, line.burst}; }

LinkTimes to_all_reduce_times(const Line& line) {
  return {line.alpha / 2, line.beta};
}  // 2 log2(2) alpha + 2 (2 - 1) / 2 beta L

std::string link_line(const char* name, const LinkTimes& link) {
  const std::string burst = link.burst > 0 ? fmt::format(", {:.1f} kB at once", 1e-3 * link.burst) : "";
  const std::string speed = link.beta > 0 ? fmt::format("{:.2f} GB/s", 1e-9 / link.beta) : "more bytes took no longer";
  return fmt::format("{:<16} alpha {:>8.1f} us, beta {:>7.3f} ns a byte ({}){}\n", name, 1e6 * link.alpha,
                     1e9 * link.beta, speed, burst);
}

std::string regression_errors_of(const LinkSamples& links, const LinkTimes& messages, const LinkTimes& sums) {
  return fit_line_of("line - messages", links.messages, messages, 1) + fit_line_of("line - sums", links.sums, sums, 2);
}

NodeLinks measure_between_hosts(Transport& transport, int rank, double seconds, LinkSamples& samples) {
  constexpr int kHosts = 2;
  constexpr double kMaxSummed = 16 << 20;
  constexpr double kMaxSent = 1 << 20;
  constexpr int kSentAtOnce = 8;
  Lockstep ranks(transport, rank, kHosts);
  samples = measure_links(ranks, kPairGroup, seconds);
  NodeLinks links;
  links.messages = to_message_times(regress_with_burst(samples.messages));
  links.sums = to_all_reduce_times(line_between_ends(samples.sums));
  // All ranks must choose the same sizes.
  const double beta = ranks.broadcast(links.sums.beta);
  const double moment = seconds / 16;
  links.transfers =
      1 - measure_sums_overlap(ranks, {kPairGroup, kOtherPairGroup}, seconds / 2, bytes_in(moment, beta, kMaxSummed));
  links.copies =
      measure_message_copies(ranks, multiply_matrices(), seconds / 2, bytes_in(moment / kSentAtOnce, beta, kMaxSent));
  links.step_overhead = measure_step_overhead(ranks);
  links.source = "chimera profile --between: " + machine_line();
  return links;
}

std::string to_text(const NodeLinks& links) {
  return link_line("messages", links.messages) + link_line("sums", links.sums) +
         fmt::format("{:<16} {:+.0f} %\n", "two sums at once", 100 * links.transfers) +
         link_line("message copies", links.copies) +
         fmt::format("{:<16} {:.1f} us\n", "end of a step", 1e6 * links.step_overhead);
}

}  // namespace chimera

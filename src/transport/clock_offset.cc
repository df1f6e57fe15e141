#include "transport/clock_offset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <limits>

#include "core/clock.h"

namespace chimera {
namespace {

constexpr int kRoundTrips = 8;

const TensorSpec& spec() {
  static const TensorSpec one_number{{1}, at::kDouble};
  return one_number;
}

void answer(Transport& transport, RankId rank) {
  for (int i = 0; i < kRoundTrips; ++i) {
    transport.post_receive(rank, spec(), {})->wait();
    transport.start_send(rank, at::full({1}, monotonic_seconds(), at::kDouble), {})->wait();
  }
}

/// Asks rank 0 for its clock. If both ways of a message take equally long, rank 0 read its clock in the middle between
/// `asked` and `arrived`. The shortest round trip has the smallest error.
double ask(Transport& transport) {
  double shortest = std::numeric_limits<double>::infinity();
  double offset = 0;
  for (int i = 0; i < kRoundTrips; ++i) {
    // Posted before the question is sent, so that the answer finds a receive waiting and is not delayed by its start.
    const auto answered = transport.post_receive(RankId(0), spec(), {});
    const double asked = monotonic_seconds();
    const auto question = transport.start_send(RankId(0), at::zeros({1}, at::kDouble), {});
    const double answer = answered->wait().item<double>();
    const double arrived = monotonic_seconds();
    question->wait();
    if (arrived - asked >= shortest) continue;
    shortest = arrived - asked;
    offset = answer - (asked + arrived) / 2;
  }
  return offset;
}

}  // namespace

double clock_offset_by_sums(Transport& transport, RankId rank) {
  std::array<double, 2 * kRoundTrips - 1> offsets{};  // An odd number, for the median
  for (double& offset : offsets) {
    double first = 0;
    transport.all_sum({&first, 1});  // Which all ranks leave at about the same time
    const double own = monotonic_seconds();
    first = rank == RankId(0) ? own : 0;
    transport.all_sum({&first, 1});
    offset = first - own;
  }
  std::ranges::nth_element(offsets, offsets.begin() + kRoundTrips - 1);
  return offsets[kRoundTrips - 1];
}

double measure_clock_offset(Transport& transport, RankId rank, std::int64_t num_ranks) {
  if (rank != RankId(0)) return ask(transport);
  for (std::int64_t other = 1; other < num_ranks; ++other) answer(transport, RankId(other));
  return 0;
}

}  // namespace chimera

#pragma once

// Statistics of measurements: medians with quartiles, and lines fitted to the times of messages. The usual line is
// alpha + beta x bytes, where alpha is the latency and 1 / beta the bandwidth. Some networks limit bandwidth with a
// token bucket: the first `burst` bytes of a message after a pause take no extra time, and only the rest is sent at the
// limited rate. Their line has a third parameter (Line::burst). `chimera profile` and `chimera bench` use these
// functions.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace chimera {

/// Measured time of a message or transfer of this size.
struct TimedSize {
  double bytes = 0;
  double seconds = 0;  // above 0
};
/// The function seconds = alpha + beta * max(0, bytes - burst).
struct Line {
  double alpha = 0;  // seconds
  double beta = 0;   // seconds per byte
  double burst = 0;  // bytes that take no time beyond alpha; 0: a straight line
};

/// Returns the points with at most the time of each larger size: if a size took longer than a larger one, other
/// programs delayed it. `points` must be ascending by size.
[[nodiscard]] inline std::vector<TimedSize> without_delays(std::vector<TimedSize> points) {
  for (std::size_t i = points.size(); i-- > 1;)
    points[i - 1].seconds = std::min(points[i - 1].seconds, points[i].seconds);
  return points;
}

/// Returns the straight line with the smallest sum of squared relative errors, so that short messages weigh as much as
/// long ones. alpha and beta are at least 0. `points` needs two different sizes.
[[nodiscard]] inline Line regress_line(const std::vector<TimedSize>& points) {
  const auto sum = [&](const auto& of) {
    double all = 0;
    for (const TimedSize& point : points) all += of(point) / (point.seconds * point.seconds);
    return all;
  };
  const double weights = sum([](const TimedSize&) { return 1; });
  const double x = sum([](const TimedSize& p) { return p.bytes; });
  const double y = sum([](const TimedSize& p) { return p.seconds; });
  const double xx = sum([](const TimedSize& p) { return p.bytes * p.bytes; });
  const double xy = sum([](const TimedSize& p) { return p.bytes * p.seconds; });
  const double beta = (weights * xy - x * y) / (weights * xx - x * x);
  if (beta < 0) return {y / weights, 0};
  const double alpha = (y - beta * x) / weights;
  return alpha < 0 ? Line{0, xy / xx} : Line{alpha, beta};
}

/// Returns the straight line from the time of the shortest message, as if it had 0 bytes, to the longest message. beta
/// is at least 0. regress_with_burst() uses it if it has too few points. `points` needs two elements, ascending by
/// size.
[[nodiscard]] inline Line line_between_ends(const std::vector<TimedSize>& points) {
  const double alpha = points.front().seconds;
  return {alpha, std::max(0.0, (points.back().seconds - alpha) / points.back().bytes)};
}

/// Fits a line with a burst, for networks that limit bandwidth with a token bucket. alpha is the time of the shortest
/// message. beta and burst fit the messages of 64 KiB and more that take longer than alpha. Shorter messages are
/// ignored: the bucket refills partly between them, which makes them faster. With fewer than three such points, returns
/// line_between_ends(). `points` needs two elements, ascending by size.
[[nodiscard]] inline Line regress_with_burst(const std::vector<TimedSize>& points) {
  constexpr double kLong = 64 << 10;
  const double alpha = points.front().seconds;
  std::vector<TimedSize> turned;  // bytes = burst + (seconds - alpha) / beta, so that the burst is at least 0
  for (const auto& [bytes, seconds] : points)
    if (bytes >= kLong && seconds > alpha) turned.push_back({seconds - alpha, bytes});
  if (turned.size() < 3) return line_between_ends(points);
  const Line line = regress_line(turned);
  return {alpha, line.beta > 0 ? 1 / line.beta : 0, line.alpha};
}

/// Median and quartiles of measured values. Each is one of the values.
struct Spread {
  double low = 0;
  double median = 0;
  double high = 0;
};

/// Returns median and quartiles, each an element of `values` (rounded down); zeros without values.
[[nodiscard]] inline Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto at = [&](std::size_t quarters) { return values[(values.size() - 1) * quarters / 4]; };
  return {at(1), at(2), at(3)};
}

}  // namespace chimera

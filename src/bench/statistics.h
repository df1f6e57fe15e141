#pragma once

#include <algorithm>
#include <vector>

// A line through measured times.

// Repeated measurements in three numbers.

namespace chimera {

/// seconds = alpha + beta * bytes
struct TimedSize {
  double bytes = 0;
  double seconds = 0;  // above 0
};
struct Line {
  double alpha = 0;
  double beta = 0;
};

/// The line whose relative errors have the least sum of squares, so that short messages count like long ones; neither
/// alpha nor beta below 0. `points`: at least two different sizes.
[[nodiscard]] inline Line fit_line(const std::vector<TimedSize>& points) {
  double weights = 0;
  double x = 0;
  double y = 0;
  double xx = 0;
  double xy = 0;
  for (const auto& [bytes, seconds] : points) {
    const double weight = 1 / (seconds * seconds);
    weights += weight;
    x += weight * bytes;
    y += weight * seconds;
    xx += weight * bytes * bytes;
    xy += weight * bytes * seconds;
  }
  const double beta = (weights * xy - x * y) / (weights * xx - x * x);
  if (beta < 0) return {y / weights, 0};
  const double alpha = (y - beta * x) / weights;
  return alpha < 0 ? Line{0, xy / xx} : Line{alpha, beta};
}

/// The line from the shortest one's time, as alpha, to the longest one, beta not below 0: of a network that lets a
/// burst pass before it holds back, which the short ones are. `points`: at least two, by ascending sizes.
[[nodiscard]] inline Line line_between_ends(const std::vector<TimedSize>& points) {
  const double alpha = points.front().seconds;
  return {alpha, std::max(0.0, (points.back().seconds - alpha) / points.back().bytes)};
}

/// A line behind a burst: seconds = alpha + beta * max(0, bytes - burst).
struct BurstLine {
  Line line;
  double burst = 0;  // bytes
};

/// The line of a network that lets a burst pass before it holds back: alpha is the shortest one's time; the rest is the
/// line, of least relative errors, through those from 64 KiB on. (What is not much longer than a burst, and comes again
/// and again, finds a part of it recovered.) `points`: at least two, by ascending sizes.
[[nodiscard]] inline BurstLine fit_behind_burst(const std::vector<TimedSize>& points) {
  constexpr double kLong = 64 << 10;
  const double alpha = points.front().seconds;
  std::vector<TimedSize> turned;  // bytes = burst + (seconds - alpha) / beta, so that no burst is below 0
  for (const auto& [bytes, seconds] : points) {
    if (bytes >= kLong && seconds > alpha) turned.push_back({seconds - alpha, bytes});
  }
  if (turned.size() < 3) return {line_between_ends(points)};
  const Line line = fit_line(turned);
  return {{alpha, line.beta > 0 ? 1 / line.beta : 0}, line.alpha};
}

/// Median and quartiles: half of the repetitions lie between `low` and `high`.
struct Spread {
  double low = 0;
  double median = 0;
  double high = 0;
};

/// `values`: at least one.
[[nodiscard]] inline Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](std::size_t quarters) { return values[(values.size() - 1) * quarters / 4]; };
  return {at(1), at(2), at(3)};
}

}  // namespace chimera

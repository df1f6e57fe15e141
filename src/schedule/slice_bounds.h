#pragma once
// How micro-batches are cut into slices of their tokens so that all slices take about equal time.

#include <cmath>
#include <cstdint>
#include <vector>

namespace chimera {

/// Returns [slices + 1]: bounds of slices with equal times, as fractions of the sequence. Later slices are shorter,
/// because they attend to more tokens. `attention` (a, 0 to 1) is the fraction of an op's time that is attention.
/// Bound j is the x for which (1 - a) x + a x^2 = j / slices.
[[nodiscard]] inline std::vector<double> balanced_bounds(std::int64_t slices, double attention) {
  // A token costs the same for matrix products, and in proportion to its place for attention. So the first x of the
  // tokens take (1 - a) x + a x^2 of the time, and bound j is where this is j/k.
  std::vector<double> bounds;
  const double linear = 1 - attention;
  for (std::int64_t j = 0; j < slices; ++j) {
    const double part = static_cast<double>(j) / static_cast<double>(slices);
    // The root of a x^2 + (1 - a) x - j/k, in the form that does not divide by a = 0.
    bounds.push_back(2 * part / (linear + std::sqrt(linear * linear + 4 * attention * part)));
  }
  if (!bounds.empty()) bounds.front() = 0;
  bounds.push_back(1);
  return bounds;
}

}  // namespace chimera

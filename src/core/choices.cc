#include "core/choices.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/printable.h"

namespace chimera {
namespace {

constexpr std::size_t kLongestName = 64;  // Longer names are cut in messages
constexpr std::size_t kMostKnown = 32;    // Names that a message lists

/// Counts insertions, deletions, substitutions and swaps of neighbors.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> earlier;  // Row i - 2
  std::vector<std::size_t> above(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], earlier[j - 2] + 1);
    }
    earlier = std::move(above);
    above = std::move(row);
  }
  return above[b.size()];
}

}  // namespace

// A third of the length tolerates one typing error in short names without calling unrelated names near.
std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates) {
  // Names from a command line may be of any length. A name this long is near no candidate.
  if (name.size() > kLongestName) return std::nullopt;
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string unknown_name(std::string_view what, std::string_view name, std::span<const std::string> candidates) {
  std::string message = "unknown " + std::string(what) + " '" + printable(name, kLongestName) + "'; ";
  if (const auto guess = nearest(name, candidates)) return message + "did you mean '" + *guess + "'?";
  message += "known: ";
  const std::size_t listed = std::min(candidates.size(), kMostKnown);
  for (std::size_t i = 0; i < listed; ++i) message += (i == 0 ? "" : ", ") + candidates[i];
  if (listed < candidates.size()) message += ", and " + std::to_string(candidates.size() - listed) + " more";
  return message;
}

}  // namespace chimera

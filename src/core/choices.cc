#include "core/choices.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/printable.h"

namespace chimera {
namespace {

constexpr std::size_t kLongestName = 64;  // Longer names are cut in messages
constexpr std::size_t kMaxKnown = 32;     // Names that a message lists

/// Counts insertions, deletions, substitutions and swaps of neighbors.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> earlier;  // Row i - 2
  std::vector<std::size_t> above(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      // row[j] is the distance between the first i letters of `a` and the first j of `b`. Only three rows are kept.
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      // Optimal string alignment: a swap of neighbors counts as one edit, so `chimrea` is as near to chimera as
      // `chimra`.
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], earlier[j - 2] + 1);
    }
    earlier = std::move(above);
    above = std::move(row);
  }
  return above[b.size()];
}

std::string listed(std::span<const std::string> names) {
  const std::size_t count = std::min(names.size(), kMaxKnown);
  const auto text = fmt::format("{}", fmt::join(names.first(count), ", "));
  return count < names.size() ? fmt::format("{}, and {} more", text, names.size() - count) : text;
}

}  // namespace

// A third of the length tolerates one typing error in short names without calling unrelated names near.
std::optional<std::string> find_nearest(std::string_view name, std::span<const std::string> candidates) {
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
  const std::string message = "unknown " + std::string(what) + " '" + printable(name, kLongestName) + "'; ";
  // Names of about the same length are near to the beginning of a longer name, but only names that begin with it count.
  std::vector<std::string> longer;
  for (const std::string& candidate : candidates)
    if (!name.empty() && candidate.starts_with(name)) longer.push_back(candidate);
  const std::optional<std::string> guess = find_nearest(name, longer.empty() ? candidates : longer);
  if (longer.size() == 1) return message + "did you mean '" + longer.front() + "'?";
  if (!guess)
    return message + (longer.empty() ? "known: " + listed(candidates) : "several begin with it: " + listed(longer));
  std::erase(longer, *guess);
  return message + "did you mean '" + *guess + "'?" + (longer.empty() ? "" : " Also begin with it: " + listed(longer));
}

}  // namespace chimera

#include "core/choices.h"

#include <algorithm>
#include <numeric>

#include "core/printable.h"

namespace chimera {
namespace {

constexpr std::size_t kLongestName = 64;  // longer names are cut in messages

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates) {
  // Names from a command line may be of any length. A name this long is near no candidate.
  if (name.size() > kLongestName) return std::nullopt;
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 2) + 1;
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
  for (std::size_t i = 0; i < candidates.size(); ++i) message += (i == 0 ? "" : ", ") + candidates[i];
  return message;
}

}  // namespace chimera

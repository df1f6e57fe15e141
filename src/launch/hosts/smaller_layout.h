#pragma once
// Layouts of a training run on fewer ranks than it was started with.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace chimera {

/// How a training run is laid out: D workers in each of W groups, and N micro-batches a step in each group.
struct RunLayout {
  std::int64_t workers = 1;        ///< D, what --stages gives
  std::int64_t data_parallel = 1;  ///< W
  std::int64_t micro_batches = 1;  ///< N
  std::int64_t mini_batch = 1;     ///< sequences in a step of all groups

  [[nodiscard]] std::int64_t ranks() const { return workers * data_parallel; }
  friend bool operator==(const RunLayout&, const RunLayout&) = default;
};

/// That of `chimera train ... --dry-run --format json`; none where the text is not what that prints.
[[nodiscard]] std::optional<RunLayout> parse_layout(const std::string& dry_run);

/// The layouts of at most `ranks` ranks with the same micro-batches in a step, best first: with fewer groups as they
/// are, from the most on; then with fewer workers in a group, from the most on, in as many groups as possible. Which of
/// them the schedule and the model allow, they do not know.
[[nodiscard]] std::vector<RunLayout> smaller_layouts(const RunLayout& now, std::int64_t ranks);

/// The flags of `chimera train` that ask for it.
[[nodiscard]] std::vector<std::string> layout_flags(const RunLayout& layout);

}  // namespace chimera

#pragma once

// The layout of a run as the launcher of hosts sees it, and smaller layouts for a job that has lost hosts. A smaller
// layout keeps the mini-batch, so the run computes the same steps. Only a dry run of `chimera train` can tell whether a
// layout is possible.

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace chimera {

/// Layout of a run: D workers in each of W groups, T ranks for each worker, N micro-batches per step and group.
struct RunLayout {
  std::int64_t workers = 1;          ///< D (--stages)
  std::int64_t data_parallel = 1;    ///< W
  std::int64_t tensor_parallel = 1;  ///< T
  std::int64_t micro_batches = 1;    ///< N
  std::int64_t mini_batch = 1;       ///< Sequences per step, over all groups

  [[nodiscard]] std::int64_t ranks() const { return workers * data_parallel * tensor_parallel; }
  friend bool operator==(const RunLayout&, const RunLayout&) = default;
};

/// Returns the layout in the output of `chimera train ... --dry-run --format json`.
[[nodiscard]] nlohmann::ordered_json layout_json(const RunLayout& layout);
/// Parses these fields; nullopt if malformed.
[[nodiscard]] std::optional<RunLayout> parse_layout(const std::string& dry_run);

/// Returns layouts of at most `ranks` ranks with the same micro-batches per step, best first: fewer groups of the same
/// size, then fewer workers per group with as many groups as possible; T stays. The job may reject them.
[[nodiscard]] std::vector<RunLayout> smaller_layouts(const RunLayout& now, std::int64_t ranks);

[[nodiscard]] std::vector<std::string> layout_flags(const RunLayout& layout);

struct LayoutReply {
  std::optional<RunLayout> layout;  ///< Empty after a failure
  std::string message;              ///< Last message; may be empty
};

/// Runs `chimera train --dry-run` with more flags; nullopt after a signal.
using DryRun = std::function<std::optional<LayoutReply>(const std::vector<std::string>& flags)>;

/// Returns the first of smaller_layouts() that a dry run accepts, else the last reason; nullopt after a signal.
[[nodiscard]] std::optional<LayoutReply> find_smaller_layout(const DryRun& dry_run, std::int64_t ranks);

}  // namespace chimera

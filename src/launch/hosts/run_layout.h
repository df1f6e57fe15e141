#pragma once

// How a run divides its ranks: workers per pipeline, data-parallel groups of workers, and micro-batches per group. If a
// job on several hosts has lost hosts, the launcher (host_restarts.h) looks for a smaller layout for the remaining
// ranks. It has the same mini-batch, so the run computes the same steps. The launcher does not load the model; it runs
// `chimera train --dry-run` on a host to find out whether a layout is possible.

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace chimera {

/// Layout of a run.
struct RunLayout {
  std::int64_t workers = 1;          ///< D: workers of each data-parallel group (--stages)
  std::int64_t data_parallel = 1;    ///< W: data-parallel groups
  std::int64_t tensor_parallel = 1;  ///< T: ranks that share each layer of a worker
  std::int64_t micro_batches = 1;    ///< N: micro-batches per step and group
  std::int64_t mini_batch = 1;       ///< Sequences per step, over all groups

  [[nodiscard]] std::int64_t ranks() const { return workers * data_parallel * tensor_parallel; }
  friend bool operator==(const RunLayout&, const RunLayout&) = default;
};

/// Returns the layout as an object, for the output of `chimera train ... --dry-run --format json`.
[[nodiscard]] nlohmann::ordered_json layout_json(const RunLayout& layout);
/// Reads the layout from the JSON output of a dry run; nullopt if it is malformed.
[[nodiscard]] std::optional<RunLayout> parse_layout(const std::string& dry_run);

/// Returns layouts of at most `ranks` ranks with the same number of micro-batches per step in all groups together, best
/// first: first fewer groups of the same size, then fewer workers per group with as many groups as possible.
/// `tensor_parallel` stays. The job may reject them.
[[nodiscard]] std::vector<RunLayout> smaller_layouts(const RunLayout& now, std::int64_t ranks);

/// Returns --stages, --data-parallel and --micro-batches of the layout.
[[nodiscard]] std::vector<std::string> layout_flags(const RunLayout& layout);

/// Result of a dry run.
struct LayoutReply {
  std::optional<RunLayout> layout;  ///< The layout of the run; empty if the dry run failed
  std::string message;              ///< Last line on standard error, such as the reason of a failure; may be empty
};

/// Function that runs the job's `chimera train --dry-run` with additional flags. Returns nullopt if a signal ends it.
using DryRun = std::function<std::optional<LayoutReply>(const std::vector<std::string>& flags)>;

/// Gets the job's present layout from `dry_run` without flags, and returns the first of its smaller_layouts() that a
/// dry run accepts. If none is accepted, returns a reply without a layout and with the message of the last failure.
/// Returns nullopt after a signal.
[[nodiscard]] std::optional<LayoutReply> find_smaller_layout(const DryRun& dry_run, std::int64_t ranks);

}  // namespace chimera

#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace chimera {

/// Layout of a run: D workers in each of W groups, and N micro-batches per step and group.
struct RunLayout {
  std::int64_t workers = 1;        ///< D (--stages)
  std::int64_t data_parallel = 1;  ///< W
  std::int64_t micro_batches = 1;  ///< N
  std::int64_t mini_batch = 1;     ///< Sequences per step, over all groups

  [[nodiscard]] std::int64_t ranks() const { return workers * data_parallel; }
  friend bool operator==(const RunLayout&, const RunLayout&) = default;
};

/// Returns the fields of the layout in the output of `chimera train ... --dry-run --format json`.
[[nodiscard]] nlohmann::ordered_json layout_json(const RunLayout& layout);
/// Parses these fields in that output; nullopt if malformed.
[[nodiscard]] std::optional<RunLayout> parse_layout(const std::string& dry_run);

/// Returns layouts of at most `ranks` ranks with the same micro-batches per step, best first: first fewer groups of the
/// same size, then fewer workers per group with as many groups as possible. Schedule or model may reject them.
[[nodiscard]] std::vector<RunLayout> smaller_layouts(const RunLayout& now, std::int64_t ranks);

[[nodiscard]] std::vector<std::string> layout_flags(const RunLayout& layout);

/// Layout that a dry run of `chimera train` accepts, and its last message.
struct LayoutReply {
  std::optional<RunLayout> layout;  ///< Empty if the dry run fails
  std::string message;              ///< Reason of a failure; may be empty
};

/// Runs `chimera train` dry with these additional flags; nullopt if a signal interrupts it.
using DryRun = std::function<std::optional<LayoutReply>(const std::vector<std::string>& flags)>;

/// Returns the first of smaller_layouts() that a dry run accepts, else the last reason against one; nullopt after a
/// signal.
[[nodiscard]] std::optional<LayoutReply> find_smaller_layout(const DryRun& dry_run, std::int64_t ranks);

}  // namespace chimera

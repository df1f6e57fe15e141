#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "check/check_limits.h"
#include "check/violation.h"
#include "generate/generator.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "search/layout.h"
#include "search/search.h"

namespace chimera {

struct NamedPlacement {
  const char* name;
  PlacementKind kind;
  std::vector<Axis> axes = {};
  std::int64_t chunks = 1;

  [[nodiscard]] bool takes(Axis axis) const;
};

/// Returns all placements, the default first.
[[nodiscard]] std::span<const NamedPlacement> named_placements();

/// Returns the result and its Pareto front.
[[nodiscard]] std::string search_json(const SearchResult& result);

struct Finding {
  std::string level;  // "schedule", or "program", its discipline, and whether pairs run together
  Violation violation;
  std::string excerpt;  // rows of the counter-example
};

/// Proof that a program cannot deadlock.
struct Proof {
  std::string level;
  std::int64_t receives_ahead;  // maximum posted and unfinished receives of a worker
};

struct CheckReport {
  Schedule schedule;
  std::vector<Finding> findings;
  std::vector<Proof> proofs;

  [[nodiscard]] std::size_t count(Severity severity) const;
  [[nodiscard]] bool is_valid() const { return count(Severity::Violation) == 0; }
};

/// Checks the schedule and, if it is valid, its limits and its programs for each channel discipline (schedules with
/// pairs: also programs that run pairs together). Gradients out of sample order are a violation if `strict_order`, else
/// a note.
[[nodiscard]] CheckReport examine(Schedule schedule, const Limits& limits, bool strict_order);

[[nodiscard]] std::string check_text(const CheckReport& report);
/// Returns `valid`, `name`, `violations` and `notes`; entries have level, kind, message and places.
[[nodiscard]] std::string check_json(const CheckReport& report);

}  // namespace chimera

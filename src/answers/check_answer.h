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

// What `chimera search` takes and prints.

// What `chimera check` prints: a schedule's faults with their counter-examples, or what was proven.

namespace chimera {

/// What each placement is called, the parameters of the shape that it takes, and its chunks where nobody says them.
struct NamedPlacement {
  const char* name;
  PlacementKind kind;
  std::vector<Axis> axes = {};
  std::int64_t chunks = 1;

  [[nodiscard]] bool takes(Axis axis) const;
};

/// All of them; the first is the default.
[[nodiscard]] std::span<const NamedPlacement> named_placements();

/// The find and its front, with the schedule as JSON.
[[nodiscard]] std::string search_json(const SearchResult& result);

struct Finding {
  std::string level;  // "schedule", or "program", its discipline, and whether pairs run together
  Violation violation;
  std::string excerpt;  // the rows of the counter-example
};

/// The proof that a program cannot get stuck.
struct Proof {
  std::string level;            // as a finding's
  std::int64_t receives_ahead;  // most receives that a worker has posted and not yet waited for
};

struct CheckReport {
  Schedule schedule;
  std::vector<Finding> findings;
  std::vector<Proof> proofs;

  [[nodiscard]] std::size_t count(Severity severity) const;
  [[nodiscard]] bool is_valid() const { return count(Severity::Violation) == 0; }
};

/// Checks the schedule and, where that is sound, its limits and its programs, one for each channel discipline; of
/// one with pairs, those that run its pairs together, too.
/// Gradients out of sample order are a violation where the order is `strict`, else a note.
[[nodiscard]] CheckReport examine(Schedule schedule, const Limits& limits, bool strict_order);

[[nodiscard]] std::string check_text(const CheckReport& report);
/// `valid`, `name`, `violations` and `notes`, these with level, kind, message and places.
[[nodiscard]] std::string check_json(const CheckReport& report);

}  // namespace chimera

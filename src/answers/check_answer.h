#pragma once

// `chimera check`: the request, its answer, and the answer as text and JSON.
//
// check_everything() runs every check of src/check on a schedule and on the programs that lower() makes of it. (A
// schedule is the order of each worker's ops; a program adds the sends, receives and all-reduces.) Its CheckResult has
// a Finding for each violation or note, with an excerpt of the schedule, and a Proof for each program without
// violations. check_text() and check_json() format the result.

#include <cstddef>

#include "answers/cost_request.h"
#include "answers/schedule_request.h"
#include "check/check_limits.h"
#include "check/violation.h"
#include "schedule/schedule.h"

namespace chimera {

/// A violation or note, and where check_everything() found it.
struct Finding {
  std::string level;  // `schedule`, or the checked program, such as `program, per-direction channels, pairs together`
  Violation violation;
  std::string excerpt;   // the workers' ops or instructions around the violation, as text
  bool is_note = false;  // whether the schedule is valid all the same
};

/// A program in which check() found no violation, so it cannot deadlock.
struct Proof {
  std::string level;            // which program, as in Finding::level
  std::int64_t receives_ahead;  // maximum number of receives that a worker has posted and not finished, at any time
};

/// The worker that has the most receives in progress while it runs ops. It matters on GPUs, where a receive is posted
/// ahead and occupies multiprocessors until its message arrives. The estimate assumes that a backward takes twice as
/// long as a forward, and messages take no time.
struct ReceiveWaits {
  WorkerId worker;
  double mean_waiting = 0;  // number of receives in progress, averaged over the time of the worker's ops
};

/// Result of check_everything().
struct CheckResult {
  Schedule schedule;
  std::vector<Finding> findings;
  std::vector<Proof> proofs;
  std::optional<ReceiveWaits> waits = std::nullopt;  // of a valid schedule with messages

  /// Returns the number of findings that are not notes.
  [[nodiscard]] std::size_t num_violations() const;
  [[nodiscard]] bool is_valid() const { return num_violations() == 0; }
};

/// The request of `chimera check`.
struct CheckRequest {
  ScheduleRequest schedule;
  PairRequest pairs;
  LimitRequest limits;
  bool strict_order = false;  // whether gradients that are not accumulated in sample order are violations

  void visit(Door& door);
};

/// Makes the schedule of the request and checks it with check_everything(). Throws ConfigError for an invalid request.
[[nodiscard]] CheckResult answer(const CheckRequest& request);

/// Checks the schedule. If it is valid, also checks the limits, the order in which gradients are accumulated, and the
/// schedule's program for each ChannelDiscipline (the order in which a transport matches sends and receives). If the
/// schedule has pairs (a forward and a backward that may overlap), also checks the programs that run them together.
/// Gradients that are not accumulated in the order of the samples are a violation if `strict_order`, else a note.
[[nodiscard]] CheckResult check_everything(Schedule schedule, const Limits& limits, bool strict_order);

/// Returns the findings with their excerpts, or the proofs, as lines of text.
[[nodiscard]] std::string check_text(const CheckResult& result);
/// Returns a JSON object with the fields `valid`, `name`, `violations`, `notes` and, if CheckResult::waits has a value,
/// `receive_waits`. Violations and notes are lists of objects with `level`, `kind`, `message` and `places`.
[[nodiscard]] std::string check_json(const CheckResult& result);

}  // namespace chimera

#pragma once
// Reads and writes schedules as CSV, to exchange them with torch.distributed.pipelining (PyTorch 2.11). A row is a
// worker, a cell is an op. to_csv() writes PyTorch's compute_only dialect, or compute_comms if it gets a program; both
// are extended for schedules that they cannot express. schedule_from_csv() reads either dialect, and
// schedule_from_text() also JSON. docs/schedule_format.md has the grammar.

#include <string_view>

#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera {

/// Returns one line per worker and one cell per op: `0F0,2I3,2W3` (PyTorch's compute_only). A pair of ops that may
/// overlap is one cell: `(0F1;1B2)OVERLAP_F_B`. If these cells do not determine the schedule (apart from its name), a
/// first line `# {...}` holds header_to_json() (schedule_json.h), and a cell ends with replica and weight version if
/// they are not 0: `3F2r1v4`. If micro-batches have slices, each cell names its slice: `3F2.1`.
///
/// Requires ids that are not negative, weight versions only if the schedule has updates, and an unpaired op after each
/// paired op.
[[nodiscard]] std::string to_csv(const Schedule& schedule);

/// Returns the same, with cells for the program's messages (PyTorch's compute_comms): SEND_F and SEND_B; RECV_F and
/// RECV_B at the places of PostReceive (program.h); and REDUCE_GRAD after a stage's last B or W on a worker. A pair is
/// one cell only if the program runs both ops together. For PyTorch's dry run, lower the program with
/// LoweringOptions::receives_ahead = 0, because a receive of the dry run blocks until the send has run.
[[nodiscard]] std::string to_csv(const Schedule& schedule, const Program& program);

/// A schedule, and messages for the user: one for each kind of cell that was ignored.
struct ReadSchedule {
  Schedule schedule;
  std::vector<std::string> notes;
};

/// Reads either dialect. Without the first line `# {...}`, the name of the schedule is `csv`, and it has one replica.
/// Each stage is then on the first worker whose row names it; a stage that no row names is on worker 0. Ignores cells
/// of messages, sharding and REDUCE_GRAD, and counts them in the notes. Does not validate the schedule; check() does.
///
/// Throws ConfigError with row and column of the cell (from 1) for any other cell. Also throws for more than
/// kMaxOpsOfFile ops (schedule_json.h) and, without the first line, for an id that is not below the number of ops.
/// `source` is the name of the file for messages.
[[nodiscard]] ReadSchedule schedule_from_csv(std::string_view text, const std::string& source);

/// Reads JSON if the first visible character is `{` or `[`, else CSV. Throws ConfigError as schedule_from_json() or
/// schedule_from_csv() does.
[[nodiscard]] ReadSchedule schedule_from_text(std::string_view text, const std::string& source);

}  // namespace chimera

#pragma once
// A schedule as CSV, both ways: the files of torch.distributed.pipelining (2.11), in its two dialects, and a superset
// for what these cannot say. The grammar, cell by cell, stands in docs/schedule_format.md.

#include <string>
#include <vector>

#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/text_source.h"

namespace chimera {

/// One line a worker, a cell for each op: `0F0,2I3,2W3` (PyTorch's compute_only). Where such a file cannot say all but
/// the name (more than one replica, weight versions, a stage without ops, ...), a first line `# {...}` says it
/// (header_to_json), and cells name replica and weight version where these are not 0: `3F2r1v4`.
/// A pair is one cell: `(0F1;1B2)OVERLAP_F_B`. Requires ids that are not negative, weight versions only where the
/// schedule states updates, and behind a paired op one that is not.
[[nodiscard]] std::string to_csv(const Schedule& schedule);

/// The same with the messages of the schedule's program (PyTorch's compute_comms): SEND_F and SEND_B where a tensor is
/// handed over, RECV_F and RECV_B where its receive is posted, REDUCE_GRAD after the last B or W of a stage on a
/// worker. Pairs are cells where the program runs them together. PyTorch runs it with any program; its own dry run lets
/// a receive block until the send has run, which a program lowered with receives_ahead = 0 allows.
[[nodiscard]] std::string to_csv(const Schedule& schedule, const Program& program);

/// What a text says: its schedule, and notes on what a schedule does not keep, one line each.
struct ReadSchedule {
  Schedule schedule;
  std::vector<std::string> notes;
};

/// Reads either dialect, with or without the first line. Without it the schedule is named `csv`, has one replica, as
/// many stages and micro-batches as the cells name, and a stage lives on the worker in whose row it stands first. Idle
/// cells are no ops; messages, sharding and REDUCE_GRAD are dropped; the notes count all but idle cells. Faults of
/// meaning are read as they are, for check() to report. Throws ConfigError with row (from 1, the first line counts) and
/// column (of cells, from 1) for any other cell, for ids without the first line that more than the text's ops would
/// have to follow, and for more than kMostOps ops.
[[nodiscard]] ReadSchedule schedule_from_csv(TextSource& text);

/// Reads JSON where the first visible character is `{` or `[`, else CSV.
[[nodiscard]] ReadSchedule schedule_from_text(TextSource& text);

}  // namespace chimera

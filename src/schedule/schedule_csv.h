#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/text_source.h"

// What the cells of a plain CSV say of the schedule's shape: as many stages and micro-batches as they name, one
// replica, each stage on the worker in whose row it stands first.

// A schedule as CSV, both ways: the files of torch.distributed.pipelining (2.11), in its two dialects, and a superset
// for what these cannot say. The grammar, cell by cell, stands in docs/schedule_format.md.

namespace chimera {

class CsvShape {
 public:
  /// Counts an op of worker w. Requires ids that are not negative; memory follows the largest stage.
  void add(const Op& op, std::size_t worker) {
    if (op.stage.index() >= worker_of_.size()) worker_of_.resize(op.stage.index() + 1);
    auto& holder = worker_of_[op.stage.index()];
    if (!holder) holder = WorkerId(static_cast<std::int64_t>(worker));
    num_micro_batches_ = std::max(num_micro_batches_, op.micro_batch.value() + 1);
  }

  [[nodiscard]] std::int64_t num_stages() const { return static_cast<std::int64_t>(worker_of_.size()); }
  [[nodiscard]] std::int64_t num_micro_batches() const { return num_micro_batches_; }
  /// A stage that no cell names counts as worker 0's; its ops are missing in any case.
  [[nodiscard]] Placement placement() const {
    Placement placement{{std::vector<WorkerId>(worker_of_.size())}};
    for (std::size_t s = 0; s < worker_of_.size(); ++s) {
      placement.worker_of[0][s] = worker_of_[s].value_or(WorkerId(0));
    }
    return placement;
  }

 private:
  std::vector<std::optional<WorkerId>> worker_of_;  // [stage]
  std::int64_t num_micro_batches_ = 0;
};

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

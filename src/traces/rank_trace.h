#pragma once
// Reads what one rank did from a file of torch.profiler (Chrome's JSON trace format, optionally gzip), or what all
// ranks did from a --trace file of chimera. torch.distributed.pipelining names a range, such as `PP:2I0`, for each
// action of a schedule that it runs from a table: stage, kind and micro-batch as in its CSV (schedule/schedule_csv.h).
// A pair is one range, `PP:(0F3;3B1)OVERLAP_F_B`. On a CPU, the range of an op includes the wait for its message.

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/op.h"

namespace chimera {

/// What a rank does in a range.
enum class RangeKind : std::uint8_t {
  Op,
  Message,      ///< SEND_F, SEND_B, RECV_F or RECV_B: starts a transfer
  GradientSum,  ///< REDUCE_GRAD
  Gather,       ///< UNSHARD or RESHARD: weights of fully sharded data parallelism
  Optimizer,    ///< Optimizer step
};

/// A range of the trace: an action of the rank. Times are in seconds from RankTrace::origin.
struct TraceRange {
  RangeKind kind = RangeKind::Op;
  Op op;  // Stage and micro-batch; stage -1: the only stage of the rank (GPipe of torch)
  double start = 0;
  double end = 0;
  bool sends = false;  // For a message: SEND rather than RECV
  // The other fields describe an op.
  double received = 0;          // End of the wait for its message; 0: not recorded
  double first_operator = 0;    // Start of its first operator; 0: none is recorded
  double work_start = 0;        // Start without the wait
  double work_end = 0;          // End of its last operator on the device, or `end`
  double covered = 0;           // Seconds with a running operator or kernel
  int weight_groups = 0;        // Products with weights in a whole backward
  double weight_products = -1;  // Fraction of a whole backward's operators for weight gradients; -1: unknown
};

/// All ranges of a rank, by start.
struct RankTrace {
  std::string file;
  std::int64_t rank = -1;                         // In the whole job; set by the readers
  std::int64_t world_size = 1;                    // Number of ranks of the job
  std::vector<std::vector<std::int64_t>> groups;  // Process groups of the rank, pipelines first
  std::int64_t origin = 0;                        // Nanoseconds since 1970
  bool on_device = false;                         // Times are of a GPU's kernels
  std::vector<TraceRange> ranges;
  std::int64_t own_worker = -1;  // Worker in its data-parallel group, if a --trace file tells it; -1: it does not
};

/// Returns whether the file is a trace: its name ends in .json or .json.gz, and its first 64 KiB name a key of such a
/// trace. False for a folder and a file that cannot be read.
[[nodiscard]] bool is_trace_file(const std::string& path);

/// Returns the ranks of a file, one for torch.profiler. Throws ConfigError, naming the file, if it is not a complete
/// trace, has more than 4 GiB, or has no ranges of a pipeline.
[[nodiscard]] std::vector<RankTrace> read_trace_file(const std::string& path);

/// Does the same with the text of a file. `source` names it in messages.
[[nodiscard]] std::vector<RankTrace> read_trace_text(std::string text, const std::string& source);

}  // namespace chimera

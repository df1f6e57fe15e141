#pragma once
// Reads what one rank did from a file of torch.profiler (Chrome's JSON trace format, optionally gzip), or what all
// ranks did from a --trace file of chimera. torch.distributed.pipelining names a range `PP:2I0` for each action of its
// table runtime: stage, kind and micro-batch as in its CSV (schedule/schedule_csv.h). A pair is one range,
// `PP:(0F3;3B1)OVERLAP_F_B`. On a CPU, the range of an op includes the wait for its message.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/op.h"

namespace chimera {

enum class RangeKind : std::uint8_t {
  Op,
  Message,      ///< SEND_F, SEND_B, RECV_F or RECV_B: starts a transfer
  GradientSum,  ///< REDUCE_GRAD
  Gather,       ///< UNSHARD or RESHARD: weights of fully sharded data parallelism
  Optimizer,    ///< Optimizer step
};

/// A range of the trace, in seconds from RankTrace::origin.
struct TraceRange {
  RangeKind kind = RangeKind::Op;
  Op op;  // Stage and micro-batch; stage -1: the only stage of the rank (GPipe of torch)
  double start = 0;
  double end = 0;
  bool sends = false;           // Of a message: SEND instead of RECV
  double received = 0;          // Of an op: end of the wait for its message; 0: not recorded
  double first_operator = 0;    // Of an op: start of its first operator; 0: none is recorded
  double work_start = 0;        // Of an op: start without the wait
  double work_end = 0;          // Of an op: end of its last operator on the device, or `end`
  double covered = 0;           // Of an op: seconds with a running operator or kernel
  double weight_products = -1;  // Of a whole backward: fraction of its operators for weight gradients; -1: unknown
};

/// All ranges of a rank, by start.
struct RankTrace {
  std::string file;
  std::int64_t rank = -1;
  std::int64_t world_size = 1;
  std::vector<std::vector<std::int64_t>> groups;  // Process groups of the rank, those of pipelines first
  std::int64_t origin = 0;                        // Nanoseconds since 1970
  bool on_device = false;                         // Whether times are those of kernels of a GPU
  std::vector<TraceRange> ranges;
  std::int64_t own_worker = -1;  // Of a --trace file: the worker of its data-parallel group
};

/// Returns whether a file or a folder with files is a trace, judging by the name and the first bytes.
[[nodiscard]] bool is_trace_file(const std::string& path);

/// Returns the ranks of a file, one for torch.profiler. Throws ConfigError, naming the file, if it is not a complete
/// trace, or has no ranges of a pipeline.
[[nodiscard]] std::vector<RankTrace> read_trace_file(const std::string& path);

/// Same, from the text of a file. `source` names it in messages.
[[nodiscard]] std::vector<RankTrace> read_trace_text(std::string text, const std::string& source);

}  // namespace chimera

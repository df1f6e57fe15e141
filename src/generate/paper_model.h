#pragma once
// What the paper's performance model asks of a schedule (Li and Hoefler, SC'21, section 3.4, equation 1): how many ops
// stand on the critical path of a step, and where a worker has room for its sums of gradients.

#include <cstdint>

#include "schedule/schedule.h"

namespace chimera {

/// C_f and C_b: forwards and backwards on the critical path of a step.
struct CriticalOps {
  std::int64_t forwards = 0;
  std::int64_t backwards = 0;
  friend bool operator==(const CriticalOps&, const CriticalOps&) = default;
};

/// The bubbles of a worker in which its sums of gradients are not exposed.
struct FreeRegions {
  std::int64_t backwards = 0;               // before the worker's last op, each as long as a backward: for ..
  std::int64_t first_stage = 0;             // .. the sums of this stage and later ones alone
  std::int64_t forwards_and_backwards = 0;  // around the step's end, each as long as both: for what is left of all sums
};

inline FreeRegions no_free_regions(const PipelineShape&, std::int64_t) { return {}; }

/// The model of a schedule with one stage on each worker and whole backwards.
struct PaperModel {
  /// `ratio` is B_t / F_t, at least 1. Halving counts ops of half micro-batches. What N leaves over of whole units, and
  /// fewer micro-batches than D, are counted as the last unit of the simulated order takes.
  CriticalOps (*critical_ops)(const PipelineShape& shape, double ratio) = nullptr;
  FreeRegions (*free_regions)(const PipelineShape& shape, std::int64_t worker) = no_free_regions;
};

}  // namespace chimera

#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Chimera with its up pipelines rotated in place of reversed: R = `pipelines` replicas go through the same D workers
/// in one direction, each begun D/R workers after the one before (rotated_placement). Each fills and drains as GPipe
/// does, and the forwards of one fill the way of the next: while a worker may hold more (D + D/R micro-batches of all
/// its stages together), it runs forwards first, then backwards.
///
/// With N = D, R | N, a worker's forwards are D in a row: a replica has D/R micro-batches, and the next replica's first
/// one comes D/R forwards after its own. So are its backwards, on the same way back. Nothing is lost but what the last
/// of D/R workers waits at the start and at the end: makespan (D + D/R - 1)(F + B) for any F and B. Chimera with two
/// replicas loses (D/2 - 1)(B - F) more. With N > D it comes near (N + D/R - 1)(F + B) where B >= F.
///
/// R divides D; any N, dealt to the replicas in turn: micro-batch m is replica m mod R's.
/// Throws ConfigError if D or N is not positive, or R does not divide D or is below 2. Source: ours, found by
/// `chimera search --placement any`, which proves that no placement of two replicas on four workers does better.
[[nodiscard]] Schedule chimera_rotated(const PipelineShape& shape);

[[nodiscard]] Generator chimera_rotated_entry();

}  // namespace chimera

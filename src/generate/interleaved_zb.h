#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Interleaved 1F1B with the backward split into I and W: v = `chunks` virtual stages on each worker, stage s on worker
/// s mod D, and micro-batches that go round them in groups of g (interleaved.h). Worker r starts with
/// min((v-1) g + D-1-r, N v) forwards; then, for j = 0, 1, .., it runs the next forward while there is one, the j-th I,
/// and from j = r on the oldest W; then the remaining W.
///
/// N below D or a multiple of N div D; any D and v. Where D divides N the makespan is
/// N (F+I+W) + (D-1) max(F, I, F+I-W)/v, F, I and W being the time of a worker's whole share, and every worker holds
/// at most D activations of its share (more where D does not divide N). At F = I = W no order on this placement, nor on
/// one in waves, is faster. v = 1 is ZB-H1 where D divides N.
/// Throws ConfigError if D, N or v is not positive, the ops are more than kMostOps, or the groups are not equal.
/// Source: Qi et al., ICLR'24 (ZB-H1); interleaved in torch.distributed.pipelining (ScheduleInterleavedZeroBubble), of
/// which these are the orders.
[[nodiscard]] Schedule interleaved_zb(const PipelineShape& shape);

[[nodiscard]] Generator interleaved_zb_entry();

}  // namespace chimera

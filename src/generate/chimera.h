#pragma once

#include "schedule/schedule.h"

namespace chimera {

/// Chimera: f down and f up pipelines through the same D workers, each starting a micro-batch every second slot.
/// Down pipeline i holds stage s on worker (i D/f + s) mod D, up pipeline i on worker (i D/f + D-1-s) mod D. In slots
/// of equal length, micro-batch m of a pipeline runs F at stage s in slot s + 2m and B in slot 2D-1-s + 2m; each unit
/// of D micro-batches (direct concatenation for N > D) starts 2D slots after the one before, so its first forwards fill
/// the bubbles among the last backwards. No two ops of a worker share a slot.
///
/// D even; any N (the last unit may be smaller; its micro-batches are dealt to the pipelines as evenly as can be); 2f
/// even and f a divisor of D/2. For N = D and F <= B the makespan is D F + (D + D/f - 2) B, and with f = 1 worker w
/// holds D/2 + 1 + min(w, D-1-w) activations, whatever N. Micro-batches are numbered unit by unit: down 0 .. down f-1,
/// then up 0 .. up f-1. Replicas likewise. Throws ConfigError if D is odd, D or N is not positive, or `pipelines` is
/// odd or does not fit D. Source: Li and Hoefler, SC'21, figures 3 (basic unit), 7 (N > D) and 8 (2f pipelines).
[[nodiscard]] Schedule chimera(const PipelineShape& shape);

}  // namespace chimera

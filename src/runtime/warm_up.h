#pragma once

// Runs the ops of a program once before the first step, for GPUs. A GPU's first use of an op in a process may wait
// until the whole GPU is idle: CUDA loads a kernel, a library builds it, or cuDNN plans attention for a new shape,
// separately on each thread. A program posts receives before its first op. A rank that waits for its own receives has
// not sent what its peers wait for, and all ranks deadlock. So the ops run first, without messages.

#include <vector>

#include "runtime/executor.h"
#include "runtime/step_hooks.h"
#include "schedule/program.h"

namespace chimera {

/// Runs the ops, sums and norms of a synchronous program once, with zeros as received messages and without an update,
/// and zeros the gradients if there are backwards. Collective: returns once all ranks have launched their ops. `hooks`
/// are as for Executor::run(), but only load, on_instruction, peak_memory and before_wait are called. Call it on a GPU
/// before the first program with receives.
///
/// It allocates as much memory as a step. If memory is short, the allocator frees its cache, and waits for that until
/// the whole GPU is idle. Here this is safe, because no receive is pending; in a step it could be a deadlock.
void warm_up(Executor& executor, const std::vector<Instruction>& program, StepHooks hooks);

}  // namespace chimera

#pragma once

// Checks the GPUs of one host before its first job, with a process for each: memory, number types, links, and one sum
// (`chimera profile --device cuda`).

#include <string>

#include "plan/machine.h"
#include "transport/accelerator.h"

namespace chimera {

/// Returns connections for check_gpus() on rank `rank`, which uses GPU number `gpu`: one group of all ranks, and
/// messages between rank 0 and each other rank.
[[nodiscard]] NcclOptions connections_of_check(int rank, int ranks, int gpu);

/// Returns a line for each GPU, the speed of a sum over all, and a line for each lack: bfloat16, memory that others
/// use, a slow link. Sets the memory of `machine`, its workers per node, and its links within a node. Collective: rank
/// `rank` of `ranks` calls it with its own GPU `device`; the result is valid on rank 0. Throws Error if a sum is wrong.
[[nodiscard]] std::string check_gpus(const Accelerator& gpus, at::Device device, Transport& transport, int rank,
                                     int ranks, MachineProfile& machine);

}  // namespace chimera

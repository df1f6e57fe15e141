#pragma once

// Checks the GPUs of one host before its first job, with one process per GPU: memory, number types, links, and an
// all-reduce (`chimera profile --device cuda`).

#include <string>

#include "plan/machine.h"
#include "transport/accelerator.h"

namespace chimera {

/// Returns the options (transport/accelerator.h) of the transport that check_gpus() needs on rank `rank`, which uses
/// GPU number `gpu`: one group of all ranks, and messages between rank 0 and each other rank.
[[nodiscard]] NcclOptions connections_of_check(int rank, int ranks, int gpu);

/// Returns a line for each GPU, a line with the speed of an all-reduce over all GPUs, and a line for each fault: no
/// bfloat16, memory in use by other processes, a slow link. Sets memory, reserved bytes, workers per node and links
/// within a node of `machine`. Collective: rank `rank` of `ranks` calls it with its own GPU `device`; the result is
/// valid on rank 0. Throws Error if a sum is wrong.
[[nodiscard]] std::string check_gpus(const Accelerator& gpus, at::Device device, Transport& transport, int rank,
                                     int ranks, MachineProfile& machine);

}  // namespace chimera

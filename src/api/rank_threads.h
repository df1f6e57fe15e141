#pragma once
// Ranks as threads of this process, with failures as exceptions.

#include <functional>

#include "transport/transport.h"

namespace chimera {

/// Calls `body` for every rank 0 .. ranks-1, each on a thread of its own (rank 0 on the caller's) with its end of a
/// transport between them. Where some fail, the others are told and end, and the first failure with a reason of its
/// own is thrown once all have ended.
void run_rank_threads(int ranks, const StageGroups& groups, const std::function<void(WorkerId, Transport&)>& body);

}  // namespace chimera

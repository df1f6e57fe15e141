#pragma once

// Errors that end an attempt of the job (one start of all ranks) on all ranks, such as a spike of the loss, or replicas
// that differ. With --recover twin, a new process replaces a failed rank; after these errors it must not, because the
// replacement would have the same error. A restart of all ranks from a checkpoint may help. All ranks detect the error.
// One of them throws FinalError, and the others wait until it has exited, so that the launcher names this rank.

#include <functional>
#include "core/error.h"
#include "transport/transport.h"

namespace chimera {

/// Ends this attempt of the job, on the rank that reports the reason.
class FinalError : public Error {
 public:
  using Error::Error;
};
/// The same error on the other ranks.
class PeerFinalError : public PeerLostError {
 public:
  using PeerLostError::PeerLostError;
};

/// All ranks call it; `why` is the error message. Throws FinalError on the rank with `is_own`, and PeerFinalError
/// on the others, after they have lost the connection to this rank.
[[noreturn]] void fail_on_all_ranks(const std::string& why, bool is_own, Transport& transport);

/// Returns the sum of act() over all ranks, which all call it. If `act` throws on a rank, its error ends this rank, and
/// PeerFinalError the others.
double sum_in_agreement(Transport& transport, const std::function<double()>& act);

}  // namespace chimera

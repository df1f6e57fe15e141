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

/// Throws the error with message `why`. All ranks call it, exactly one of them with `is_own`: the rank to be named as
/// the cause. Throws FinalError on this rank, and PeerFinalError on the others after they have lost the connection to
/// it.
[[noreturn]] void fail_on_all_ranks(const std::string& why, bool is_own, Transport& transport);

/// Calls act() on every rank, and returns the sum of the results. All ranks call it. If act() throws on some ranks,
/// these rethrow the error, and the others throw PeerFinalError. Exports write their files in `act`.
double sum_in_agreement(Transport& transport, const std::function<double()>& act);

}  // namespace chimera

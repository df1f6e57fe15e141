#pragma once

// Errors that end an attempt of the job on all ranks, such as a spike of the loss or replicas that differ. A
// replacement of a rank would meet the same error, so --recover twin must not try one; a restart from a checkpoint may
// help. One rank has the error, and all others follow it, so that the launcher blames the right one.

#include <string>

#include "core/error.h"
#include "transport/transport.h"

namespace chimera {

/// Ends this attempt of the job, on the rank that reports the reason.
class FinalError : public Error {
 public:
  using Error::Error;
};
/// The same error on the other ranks.
class FinalElsewhereError : public PeerLostError {
 public:
  using PeerLostError::PeerLostError;
};

/// All ranks call it. Throws FinalError on the rank with `is_own`, and FinalElsewhereError on the others once they have
/// lost that rank.
[[noreturn]] void end_everywhere(const std::string& why, bool is_own, Transport& transport);

}  // namespace chimera

#pragma once
// Failures of which no twin helps (--recover twin): a rank in the place of another would meet the same.

#include <string>

#include "core/error.h"
#include "transport/transport.h"

namespace chimera {

/// Ends this start of the job, on the rank that is to report it.
class FinalError : public Error {
 public:
  using Error::Error;
};
/// The same on the others.
class FinalElsewhereError : public PeerLostError {
 public:
  using PeerLostError::PeerLostError;
};

/// Ends the job on all ranks, which all call it: FinalError where `is_own`, on one of them; FinalElsewhereError on the
/// others, once they have lost that one.
[[noreturn]] void end_everywhere(const std::string& why, bool is_own, Transport& transport);

}  // namespace chimera

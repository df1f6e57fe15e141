#pragma once
// Errors that a replacement would repeat.

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

#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

// What ends a run. Expected answers (a violation, an absent value) are values, never exceptions.

namespace chimera {

/// Base of every error that a user may meet. The message is one line: what, where, what would be right.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Wrong usage or configuration; names the legal values. The program exits with 2.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A schedule or program that cannot be what it claims; names worker and op.
class ScheduleError : public Error {
 public:
  using Error::Error;
};

/// A transfer or collective that failed; names rank, peer and op. The transport is unusable afterwards.
class TransportError : public Error {
 public:
  using Error::Error;
};

/// A TransportError whose cause lies with another rank: that one's error is the news, not this one.
class PeerLostError : public TransportError {
 public:
  using TransportError::TransportError;
};

/// Exit codes of the program, as `--help` lists them.
enum class ExitCode : int {
  Success = 0,        ///< done, or the answer is "yes"
  No = 1,             ///< the answer is "no": an invalid schedule, a failed run
  Usage = 2,          ///< wrong usage or configuration
  PeerLost = 3,       ///< a rank ended because another one did; never the code of the whole job
  Interrupted = 130,  ///< Ctrl-C
  Terminated = 143,   ///< SIGTERM
};

/// What a user's code in another language raised. Passes through as it is, so that whoever speaks that language can
/// raise `cause` again, with all that belongs to it.
class UserCodeError : public Error {
 public:
  UserCodeError(const std::string& message, std::exception_ptr cause) : Error(message), cause_(std::move(cause)) {}
  [[nodiscard]] const std::exception_ptr& cause() const { return cause_; }

 private:
  std::exception_ptr cause_;
};

}  // namespace chimera

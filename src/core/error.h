#pragma once
// The exceptions of the program and its exit codes. main() prints the message of an Error as one line and ends with an
// exit code:
//
//   ConfigError                      2  (ExitCode::Usage)
//   PeerLostError in a rank process  3  (ExitCode::PeerLost)
//   every other Error                1  (ExitCode::No)
//
// Broken invariants of the program itself are in invariant.h.

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace chimera {

/// Base of all errors that a user may see. The message is one line: the problem, its place, the expected value.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Wrong usage or configuration. The message names the legal values. Exit code 2.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A pipeline schedule, or a program of instructions made from it (schedule/program.h), that is inconsistent. The
/// message names worker and op.
class ScheduleError : public Error {
 public:
  using Error::Error;
};

/// A failed message or collective between ranks. The message names rank, peer and op. The transport is unusable
/// afterwards.
class TransportError : public Error {
 public:
  using Error::Error;
};

/// A TransportError caused by the failure of another rank. The other rank's error message has the cause.
class PeerLostError : public TransportError {
 public:
  using TransportError::TransportError;
};

/// Exit codes of the program. `train` has one more: kSavedExit (launch/local/process.h), saved after a signal.
enum class ExitCode : int {
  Success = 0,        ///< Done, or the answer is yes
  No = 1,             ///< The answer is no: an invalid schedule, a failed run
  Usage = 2,          ///< Wrong usage or configuration
  PeerLost = 3,       ///< A rank ended because of another rank; never the code of a whole job
  Interrupted = 130,  ///< Ctrl-C
  Terminated = 143,   ///< SIGTERM
};

/// An exception of user code in another language, such as Python. The binding of the language can rethrow `cause` to
/// the user's code.
class UserCodeError : public Error {
 public:
  UserCodeError(const std::string& message, std::exception_ptr cause) : Error(message), cause_(std::move(cause)) {}
  [[nodiscard]] const std::exception_ptr& cause() const { return cause_; }

 private:
  std::exception_ptr cause_;
};

}  // namespace chimera

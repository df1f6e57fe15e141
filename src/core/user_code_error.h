#pragma once

#include <exception>
#include <string>
#include <utility>

#include "core/error.h"

namespace chimera {

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

#pragma once
// The message of an error that a test expects.

#include <string>

#include "core/error.h"

namespace chimera::testing {

/// Returns the message of the error that `action` throws, or `otherwise` if it throws nothing.
template <class Kind = ConfigError, class Action>
std::string message_of(const Action& action, const char* otherwise = "") {
  try {
    action();
  } catch (const Kind& error) {
    return error.what();
  }
  return otherwise;
}

}  // namespace chimera::testing

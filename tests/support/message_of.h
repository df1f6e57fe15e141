#pragma once
// The message of an error that a test expects.

#include <string>

#include "core/error.h"

namespace chimera::testing {

/// Returns the message of the ConfigError that `action` throws, or `otherwise` if it throws nothing.
template <class Action>
std::string message_of(const Action& action, const char* otherwise = "") {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return otherwise;
}

}  // namespace chimera::testing

#pragma once
// `chimera bench --validate`.

#include <string>

#include "profile/validate.h"

namespace chimera::apps {

/// Validates, and writes the table to `output`, or standard output where that is empty.
void run_validation(ValidationOptions options, const std::string& format, const std::string& output);

}  // namespace chimera::apps

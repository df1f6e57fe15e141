#pragma once
// Training by a schedule that updates weights between its ops.

#include "train/setup/job.h"

namespace chimera {

/// Throws ConfigError for options that an asynchronous schedule gives no meaning to, and for more micro-batches than
/// can be numbered.
void require_asynchronous(const JobShape& job);

}  // namespace chimera

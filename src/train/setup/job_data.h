#pragma once
// The data of a run, opened.

#include "train/setup/job.h"

namespace chimera {

/// Opens what --data and --validation name, and makes of it the samples of training and, where asked for, of
/// validation. Throws ConfigError, one line, for data that cannot be read or do not fit the model.
void open_data(Job& job);

}  // namespace chimera

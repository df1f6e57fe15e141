#pragma once
// Checkpoints in Python: the files and the commit protocol of `chimera train` (docs/checkpoint_format.md).

#include <torch/csrc/utils/pybind.h>

namespace chimera {

/// Adds to the module what _training.pyi lists of checkpoints.
void bind_checkpoints(pybind11::module_& module);

}  // namespace chimera

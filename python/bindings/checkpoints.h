#pragma once
// Checkpoints of `chimera train` for Python (docs/checkpoint_format.md).

#include <torch/csrc/utils/pybind.h>

namespace chimera {

/// Adds the checkpoint functions of _training.pyi.
void bind_checkpoints(pybind11::module_& module);

}  // namespace chimera

#pragma once
// Chimera's exceptions in Python.

#include <torch/csrc/utils/pybind.h>

namespace chimera {

/// Adds Error and the kinds of it that _training.pyi lists. Their messages name what callers in Python know:
/// `partition`, not `FitOptions::partition`.
void bind_errors(pybind11::module_& module);

}  // namespace chimera

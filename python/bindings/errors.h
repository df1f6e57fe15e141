#pragma once

#include <torch/csrc/utils/pybind.h>

namespace chimera {

/// Adds the exceptions of _training.pyi. Messages use the names of Python arguments, such as `partition` instead of
/// `FitOptions::partition`.
void bind_errors(pybind11::module_& module);

}  // namespace chimera

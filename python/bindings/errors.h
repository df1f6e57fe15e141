#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>

namespace chimera {

/// Adds the exceptions of _training.pyi. Messages use the names of Python arguments, such as `partition` instead of
/// `FitOptions::partition`.
void bind_errors(pybind11::module_& module);

/// Decodes UTF-8; other bytes become the surrogates that os.fsencode() turns back into them.
[[nodiscard]] pybind11::str text_with_any_bytes(const std::string& text);

}  // namespace chimera

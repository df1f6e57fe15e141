#pragma once
// The user's code, in Python, as the training half calls it: layers and the loss.

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/layers.h"
#include "model/module_stage.h"

namespace chimera {

/// Has Python raise the exception under way. Python's own errors go on with their traceback; with the GIL.
[[noreturn]] void raise_in_python();

/// Parameters by name in their module, each once.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// One of the user's layers: `call` maps a tensor to a tensor.
struct PythonLayer {
  std::string kind;  // its class
  pybind11::object call;
  NamedTensors parameters;
};

/// [layer] of one rank; none where the rank does not hold it.
using RankLayers = std::map<std::int64_t, PythonLayer>;

/// The layer as stages hold it, with its parameters under their names. What Python raises in it is a UserCodeError.
[[nodiscard]] Layer made_layer(const PythonLayer& layer);

/// The loss of two functions: of output and target the sum, of the target the count.
[[nodiscard]] Loss python_loss(const pybind11::object& sum, const pybind11::object& count);

}  // namespace chimera

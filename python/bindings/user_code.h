#pragma once
// Layers and losses in Python, for the C++ training half.

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/layers.h"
#include "model/module_stage.h"

namespace chimera {

/// Raises the current exception in Python, with the original traceback of Python exceptions. Requires the GIL.
[[noreturn]] void raise_in_python();

/// Makes layers and losses get `begin_draws()` before torch's first draw from a default generator in a call, and
/// `end_draws()` after the call. Called once.
void watch_draws();

/// Notes a draw that a layer or loss will make, such as from a state that it saves.
void note_draw();

/// Ends the watch over draws in this call, whose states are known to be those of the op.
void end_watch();

/// Each parameter once, by its name in the module.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// A layer of the user; `call` maps a tensor to a tensor.
struct PythonLayer {
  std::string kind;  // Class name
  pybind11::object call;
  NamedTensors parameters;
};

/// Layers of one rank by index.
using RankLayers = std::map<std::int64_t, PythonLayer>;

/// Returns a layer for a stage, with named parameters. Its Python exceptions become UserCodeError.
[[nodiscard]] Layer made_layer(const PythonLayer& layer);

/// Returns a Python function of a stage's number. Its exceptions become UserCodeError.
[[nodiscard]] std::function<void(std::int64_t)> stage_function(const pybind11::object& function);

/// Returns a Python function from number to number. Its exceptions become UserCodeError.
[[nodiscard]] std::function<double(double)> number_function(const pybind11::object& function);

/// Returns a loss. `sum`: function of output and target; `count`: function of the target.
[[nodiscard]] Loss python_loss(const pybind11::object& sum, const pybind11::object& count);

}  // namespace chimera

#pragma once

// Creates the stages of a worker with their parameters. An InitialValue is a function that returns the value of each
// parameter: random numbers from a seed, or values from a checkpoint or a model folder (engine/stored_values.h). In a
// tied model, the token embedding and the output matrix (head) are one matrix, which make_tied_weight() makes.
// make_stage() makes a stage with all its other parameters, and borrows the leaves (autograd tensors) of the tied
// matrix:
//
//   value = initial_values_of(seed);
//   tied = make_tied_weight(config, {.embedding = true, .head = true}, dtype, value);
//   stage = make_stage(config, layers, dtype, value, tied->leaves());
//
// `dtype` is the type of hidden states. Parameters and gradients have weight_type(dtype); the layers use copies in
// `dtype` if it differs (mixed precision).

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>
#include <cstdint>
#include <functional>
#include <memory>

#include "model/parameter_group.h"
#include "model/stage.h"
#include "model/tensor_parallel.h"
#include "model_config/parameters.h"

namespace chimera {

/// Returns the value of a parameter before the first step as a new contiguous tensor, with the type and device in
/// `options`. With tensor parallelism, it is the rank's part of the parameter, which `place` gives (held_shape() in
/// model_config/tensor_cut.h).
using InitialValue = std::function<at::Tensor(const ParameterSpec& parameter, const at::TensorOptions& options,
                                              const TensorPlace& place)>;

/// Returns values that depend only on seed and parameter name. Element i (row-major) of a normal parameter is
/// CounterRandom(seed, name).normal(i) times its standard deviation, in float64, then rounded to the type in the
/// options.
[[nodiscard]] InitialValue initial_values_of(std::uint64_t seed);

/// Returns the type of master weights, gradients and optimizer state for hidden states of type `compute`: the wider of
/// `compute` and float32.
[[nodiscard]] inline at::ScalarType weight_type(at::ScalarType compute) {
  return c10::promoteTypes(compute, at::kFloat);
}

/// Makes the stage with the layers `layers` of `config`. `tied` has the worker's leaves of a tied matrix, which is not
/// a parameter of the stage. `tensor` is the group of ranks that share the layers (tensor_parallel.h), of which this
/// rank gets its part; null: the rank has whole layers. Throws ConfigError if the stage needs a tied leaf that is
/// missing.
[[nodiscard]] std::unique_ptr<Stage> make_stage(const ModelConfig& config, const StageLayers& layers,
                                                at::ScalarType dtype, const InitialValue& value,
                                                const TiedLeaves& tied = {}, at::Device device = at::kCPU,
                                                TensorGroup* tensor = nullptr);

/// Makes the tied matrix of a worker. `uses` says whether the worker has the embedding, the head or both.
[[nodiscard]] std::unique_ptr<TiedWeight> make_tied_weight(const ModelConfig& config, const TiedUses& uses,
                                                           at::ScalarType dtype, const InitialValue& value,
                                                           at::Device device = at::kCPU, TensorGroup* tensor = nullptr);

}  // namespace chimera

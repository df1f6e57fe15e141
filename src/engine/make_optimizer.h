#pragma once

// Creates the optimizer that --optimizer names, for the parameters of one rank. Optimizers that share their work
// between ranks have functions of their own (engine/sharded_optimizer.h, engine/muon.h).

#include "engine/optimizer.h"

namespace chimera {

/// Create AdamW, SGD, LAMB (make_vector_optimizer()) or Muon (make_muon()) for these parameters, or for the parameters
/// of these groups. The optimizer borrows the parameters and `tensor`: the ranks that share the layers, which LAMB and
/// Muon need with tensor parallelism; else null.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        const std::vector<Parameter>& parameters,
                                                        TensorGroup* tensor = nullptr);
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        const std::vector<ParameterGroup*>& trained,
                                                        TensorGroup* tensor = nullptr);

}  // namespace chimera

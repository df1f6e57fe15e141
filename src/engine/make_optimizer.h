#pragma once

// Creates the optimizer that --optimizer names, for the parameters of one rank. Optimizers that share their work
// between ranks have functions of their own (engine/sharded_optimizer.h, engine/muon.h).

#include <memory>
#include <vector>

#include "engine/optimizer.h"

namespace chimera {

/// Creates AdamW, SGD, LAMB (make_vector_optimizer()) or Muon (make_muon()).
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        const std::vector<Parameter>& parameters,
                                                        SumOverParts sum = {});
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        const std::vector<ParameterGroup*>& trained,
                                                        SumOverParts sum = {});

}  // namespace chimera

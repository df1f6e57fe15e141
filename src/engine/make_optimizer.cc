#include "engine/make_optimizer.h"

#include "engine/muon.h"

namespace chimera {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const std::vector<Parameter>& parameters,
                                          TensorGroup* tensor) {
  if (options.kind == OptimizerKind::Muon) return make_muon(options, parameters, tensor);
  return make_vector_optimizer(options, parameters, tensor);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const std::vector<ParameterGroup*>& trained,
                                          TensorGroup* tensor) {
  std::vector<Parameter> parameters;
  for (const ParameterGroup* group : trained) {
    parameters.insert(parameters.end(), group->parameters().begin(), group->parameters().end());
  }
  return make_optimizer(options, parameters, tensor);
}

}  // namespace chimera

#include "engine/make_optimizer.h"

#include <utility>

#include "engine/muon.h"

namespace chimera {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const std::vector<Parameter>& parameters,
                                          SumOverParts sum) {
  if (options.kind == OptimizerKind::Muon) return make_muon(options, parameters);
  return make_vector_optimizer(options, parameters, std::move(sum));
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const std::vector<ParameterGroup*>& trained,
                                          SumOverParts sum) {
  std::vector<Parameter> parameters;
  for (const ParameterGroup* group : trained) {
    parameters.insert(parameters.end(), group->parameters().begin(), group->parameters().end());
  }
  return make_optimizer(options, parameters, std::move(sum));
}

}  // namespace chimera

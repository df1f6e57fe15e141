#include "model/stage.h"

#include <utility>

namespace chimera {

Stage::Stage(std::vector<Parameter> parameters, const TiedLeaves& tied) : ParameterGroup(std::move(parameters)) {
  for (const Parameter& parameter : this->parameters()) leaves_.push_back(parameter.value);
  for (const at::Tensor& leaf : {tied.embedding, tied.head}) {
    if (leaf.defined()) leaves_.push_back(leaf);
  }
}

}  // namespace chimera

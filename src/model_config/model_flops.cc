#include "model_config/model_flops.h"

namespace chimera {

double model_flops(const ModelConfig& config, const Workload& workload) {
  const LayerFootprint block = layer_footprint(config, LayerKind::Block, workload);
  const LayerFootprint head = layer_footprint(config, LayerKind::Head, workload);
  // The head's forward has the product with its matrix twice, for the gradient as well; its I has none.
  const double logits = (head.forward_flops - head.input_gradient_flops) / 2;
  return static_cast<double>(config.layers) *
             (block.forward_flops + block.input_gradient_flops + block.weight_gradient_flops) +
         3 * (logits + head.input_gradient_flops);
}

}  // namespace chimera

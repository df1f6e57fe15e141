#include "generate/hanayo_zb.h"

#include "generate/deepest_first.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kHanayoZb = "hanayo-zb";

std::optional<std::string> hanayo_zb_refusal(const PipelineShape& shape) { return wave_refusal(shape, 3); }

}  // namespace

Schedule hanayo_zb(const PipelineShape& shape) {
  require_shape(kHanayoZb, hanayo_zb_refusal(shape));
  const std::int64_t chunks = 2 * shape.waves;
  return deepest_first({.name = kHanayoZb,
                        .placement = wave_placement(shape.stages, chunks),
                        .replica_of = std::vector<ReplicaId>(static_cast<std::size_t>(shape.micro_batches)),
                        .admitted = shape.stages,
                        .most_held = shape.stages * chunks});
}

Generator hanayo_zb_entry() {
  return {.name = kHanayoZb,
          .generate = hanayo_zb,
          .refusal = hanayo_zb_refusal,
          .rule =
              "Hanayo's waves with B cut into I and W: of the F and I that can run the one farthest along its way goes "
              "first, W fills what is free, and D micro-batches are on their way at most.",
          .constraints = "any D, N, w",
          .closed_form = "N(F+I+W) + (D-1)F/2w, F=I=W, D | N",
          .activations = "D",
          .source = "ours",
          .figure = {4, 4},
          .axes = {waves()},
          .stages_a_worker = [](const PipelineShape& shape) { return 2 * shape.waves; }};
}

}  // namespace chimera

#include "runtime/worker_context.h"

#include <fmt/format.h>

#include <utility>

namespace chimera {
namespace {

std::vector<TensorSpec> slices_of(const TensorSpec& whole, const std::vector<std::int64_t>& bounds) {
  std::vector<TensorSpec> slices;
  for (std::size_t end = 1; end < bounds.size(); ++end) {
    slices.push_back(whole);
    // A message may have a share of each slice's tokens.
    slices.back().sizes.at(1) = (bounds[end] - bounds[end - 1]) * whole.sizes.at(1) / bounds.back();
  }
  return slices;
}

}  // namespace

WorkerContext::WorkerContext(WorkerId own_worker, std::map<StageId, Stage*> own_stages, Transport& connections,
                             TensorSpec whole_message, ProgramShape program_shape, ParameterGroup* own_tied)
    : worker(own_worker),
      stages(std::move(own_stages)),
      transport(connections),
      message(std::move(whole_message)),
      shape(std::move(program_shape)),
      tied(own_tied),
      slices(slices_of(message, shape.slice_bounds)) {
  for (const auto& [id, stage] : stages) groups[parameters_of(id)] = stage;
  if (tied != nullptr) groups[tied_matrix(shape.stages())] = tied;
}

const TensorSpec& WorkerContext::message_of(const Op& maker) const {
  if (!slices.empty()) return slices[static_cast<std::size_t>(maker.slice)];
  // A forward sends over the boundary after its stage, a backward over the one before it. Only models of users have
  // different sizes at different boundaries.
  if (shape.boundaries.empty()) return message;
  return shape.boundaries[maker.stage.index() - (maker.kind == OpKind::Forward ? 0 : 1)];
}

std::vector<Parameter> owned_parameters(const ParameterGroup& group, std::size_t members, std::size_t member) {
  const std::vector<std::size_t> owners = owners_of(group, members);
  std::vector<Parameter> own;
  for (std::size_t p = 0; p < owners.size(); ++p)
    if (owners[p] == member) own.push_back(group.parameters()[p]);
  return own;
}

/// Leaves 21 bits to the stage, as models have fewer layers.
OpKey key_of(const Op& op) {
  static_assert(kMaxSlices <= 1 << 10);
  return (static_cast<OpKey>(op.kind) << 62U) | (static_cast<OpKey>(op.slice) << 52U) |
         (static_cast<OpKey>(op.stage.value()) << 31U) | static_cast<OpKey>(op.micro_batch.value());
}

Op forward_of(Op op) {
  op.kind = OpKind::Forward;
  return op;
}

std::string name_of(const Op& op) {
  return fmt::format("{} (stage {}, micro-batch {})", to_text(op), op.stage.value(), op.micro_batch.value());
}

}  // namespace chimera

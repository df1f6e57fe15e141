#pragma once

// Muon: momentum, orthogonalized by five Newton-Schulz iterations (Jordan, 2024; torch.optim.Muon of torch 2.11). It
// updates the matrices of blocks (model_config/matrices.h), AdamW the other parameters. For a matrix W of out x in with
// gradient G and learning rate r:
//
//   B = 0.95 B + 0.05 G,   O = iterations of 0.05 G + 0.95 B,   W = (1 - r decay) W - r adjust(out, in) O
//
// The iterations are most of the work, and the ranks with a copy of a stage have equal gradients. Therefore each of
// them iterates a part of the stage's matrices, and an all-gather sends the results to the others.

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "engine/optimizer.h"
#include "transport/transport.h"

namespace chimera {

/// Returns the result of the iterations on `matrix`, in the type `type`. It is transposed if `matrix` has more rows
/// than columns. The bits do not depend on the strides of `matrix`. Coefficients, number of iterations and epsilon
/// are as in torch.optim.Muon.
[[nodiscard]] at::Tensor orthogonalized(const at::Tensor& matrix, at::ScalarType type);

/// Creates Muon for a single rank. State: one `momentum` for each parameter with matrices.
[[nodiscard]] std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options,
                                                   const std::vector<Parameter>& parameters);

/// Creates Muon for the ranks `groups[id]` of each group, which share the iterations. Updated parameters equal those of
/// make_muon() bit by bit. step() starts one all-gather per group, in the order of groups on all ranks, and waits for
/// them in the same order. It changes nothing before the last one is complete: if it throws TransportError,
/// step_alone() can make the update. Borrows `trained` and `transport`.
[[nodiscard]] std::unique_ptr<Optimizer> make_shared_muon(const OptimizerOptions& options,
                                                          const std::map<ParameterGroupId, ParameterGroup*>& trained,
                                                          const RankGroups& groups, RankId rank, Transport& transport);

/// Returns the owner of each parameter if `members` shard the optimizer: the parameters with the most FLOPs of
/// iterations first, each to the member with the least work (ParameterGroup::divide()).
[[nodiscard]] std::vector<std::size_t> muon_owners(const OptimizerOptions& options,
                                                   const std::vector<Parameter>& parameters, std::size_t members);

}  // namespace chimera

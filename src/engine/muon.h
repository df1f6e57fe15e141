#pragma once

// Muon: momentum, orthogonalized by five Newton-Schulz iterations (Jordan, 2024; torch.optim.Muon of torch 2.11). It
// updates the matrices of blocks (model_config/matrices.h), and AdamW the other parameters. For a matrix W of shape out
// x in with gradient G, momentum B, learning rate r and weight decay `decay`, where orthogonalized() does the
// iterations and MuonOptions::adjust gives the factor `adjust`:
//
//   B = 0.95 B + 0.05 G
//   O = orthogonalized(0.05 G + 0.95 B)
//   W = (1 - r decay) W - r adjust O
//
// The iterations are most of the work. All ranks with a copy of a stage have equal gradients after the all-reduce, so
// each of them does the iterations for some of the stage's matrices, and an all-gather sends the results to the others.
// With tensor parallelism (`tensor`), the T ranks of a worker gather each matrix, all do its iterations, and each keeps
// its part.

#include <cstddef>
#include <map>

#include "engine/optimizer.h"
#include "model/tensor_parallel.h"
#include "transport/transport.h"

namespace chimera {

/// Returns `matrix` orthogonalized by the iterations, which compute in `type`. If `matrix` has more rows than columns,
/// returns the transpose of the result, with as many rows as `matrix` has columns. Its bits do not depend on the
/// strides of `matrix`. Coefficients, number of iterations and epsilon are as in torch.optim.Muon.
[[nodiscard]] at::Tensor orthogonalized(const at::Tensor& matrix, at::ScalarType type);

/// Creates Muon for rank `rank`. `trained` has the parameter groups (stages) on this rank, and `groups` the ranks that
/// hold each group and share its iterations. Updated parameters equal those of make_muon() bit by bit. step() starts
/// one all-gather per group, in the order of groups on all ranks, and waits for them in the same order. It changes
/// nothing before the last one is complete: if it throws TransportError, step_alone() can make the update. Borrows
/// `trained` and `transport`.
[[nodiscard]] std::unique_ptr<Optimizer> make_shared_muon(const OptimizerOptions& options,
                                                          const std::map<ParameterGroupId, ParameterGroup*>& trained,
                                                          const RankGroups& groups, RankId rank, Transport& transport,
                                                          TensorGroup* tensor = nullptr);

/// Returns the owner, 0 .. members - 1, of each parameter if the optimizer is sharded over this number of ranks:
/// parameters with the most FLOPs of iterations first, each to the rank with the least work so far.
/// OwnerScope takes the result.
[[nodiscard]] std::vector<std::size_t> muon_owners(const OptimizerOptions& options,
                                                   const std::vector<Parameter>& parameters, std::size_t members);

}  // namespace chimera

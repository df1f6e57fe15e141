#pragma once

// The matrices that the optimizer Muon (engine/muon.h) updates: the weights of linear layers in blocks. A matrix has
// the shape out x in (outputs and inputs of its layer). A stored parameter may be the transpose of its matrix (GPT-2
// stores in x out), or hold several matrices (GPT-2's queries, keys and values). Muon updates each matrix separately,
// so a run does not depend on how a model stores its matrices. By family, where N is the number of the block:
//
//   GPT-2   h.N: attn.c_attn (three matrices), attn.c_proj, mlp.c_fc, mlp.c_proj, all transposed
//   BERT    bert.encoder.layer.N: query, key, value and the three dense
//   Llama   model.layers.N: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj
//
// Embeddings, heads, norms and biases are not among them.

#include <cstddef>
#include <string_view>

#include "model_config/model_config.h"
#include "model_config/partition.h"

namespace chimera {

/// A matrix within a stored parameter.
struct LogicalMatrix {
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::int64_t first = 0;      ///< first stored row (column if transposed) of the matrix
  bool is_transposed = false;  ///< whether the parameter is stored as in x out
  [[nodiscard]] std::int64_t count() const { return out * in; }
};

/// Returns the matrices of the parameter with this name and shape, in the order of storage; nothing unless it is a
/// matrix of a block.
[[nodiscard]] std::vector<LogicalMatrix> logical_matrices(std::string_view name,
                                                          const std::vector<std::int64_t>& shape);
/// Returns the matrices of all blocks of a stage.
[[nodiscard]] std::vector<LogicalMatrix> logical_matrices(const ModelConfig& config, const StageLayers& stage);

/// Returns the number of elements of all matrices.
[[nodiscard]] std::int64_t elements_of(const std::vector<LogicalMatrix>& matrices);

/// Returns the FLOPs of Muon's five iterations on a matrix: 5 (4 m^2 n + 2 m^3), where m is the smaller and n the
/// larger of `rows` and `columns`.
[[nodiscard]] double iteration_flops(std::int64_t rows, std::int64_t columns);

/// Divides tasks with these costs among `members` ranks: in descending order of cost, each task goes to the rank with
/// the least cost so far. Returns [task]: its rank, 0 .. members - 1.
[[nodiscard]] std::vector<std::size_t> share_out(const std::vector<double>& costs, std::size_t members);

/// Returns the FLOPs of iterations on the busiest rank if `members` ranks divide the matrices (share_out()).
[[nodiscard]] double busiest_iterations(const std::vector<LogicalMatrix>& matrices, std::size_t members);

}  // namespace chimera

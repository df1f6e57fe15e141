#pragma once

// Which parameters T ranks of tensor parallelism divide, and where (Shoeybi et al., arXiv 1909.08053, section 3): first
// matrices of a sub-layer by outputs (queries, keys and values by whole heads), second matrices by inputs, matrices
// with a row per token by rows. Norms, biases of second matrices and positions are whole on every rank. Files have
// whole parameters, so that they do not depend on T. model/tensor_parallel.h computes with the parts.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model_config/model_config.h"
#include "model_config/parameters.h"

namespace chimera {

/// Elements first .. first + count - 1.
struct TensorRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// One of T ranks that share layers.
struct TensorPlace {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;  // T

  /// Returns this rank's share of `size` elements: ceil(size / T), of the last rank the rest.
  [[nodiscard]] TensorRange share_of(std::int64_t size) const {
    const std::int64_t each = (size + ranks - 1) / ranks;
    const std::int64_t first = std::min(rank * each, size);
    return {first, std::min(each, size - first)};
  }
};

/// Dimension that the ranks divide. It consists of equal blocks (queries, keys and values in one matrix), and each rank
/// has its share of every block.
struct TensorCut {
  std::int64_t dimension = 0;
  std::int64_t blocks = 1;
};

/// Returns where the parameter is cut; nothing if it is whole on every rank.
[[nodiscard]] std::optional<TensorCut> tensor_cut(std::string_view parameter);

/// Returns the shape of a parameter's part on a rank.
[[nodiscard]] std::vector<std::int64_t> held_shape(const ParameterSpec& parameter, const TensorPlace& place);
/// Returns the number of elements of a parameter on a rank.
[[nodiscard]] std::int64_t held_elements(const ParameterSpec& parameter, const TensorPlace& place);

/// Returns whether a rank computes only its part of the gradient of a whole parameter: norms of queries and keys, which
/// see the heads of one rank; if ranks have `own_tokens` between split layers, all but BERT's head, which sees all
/// tokens. Such gradients are added over the T ranks once a step.
[[nodiscard]] bool has_partial_gradient(std::string_view parameter, bool own_tokens);

/// Throws ConfigError unless T divides the heads (also of keys and values) and the feed-forward width, and every rank
/// has tokens of the vocabulary.
void require_divisible(const ModelConfig& model, std::int64_t tensor_parallel);

}  // namespace chimera

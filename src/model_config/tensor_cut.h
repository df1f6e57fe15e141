#pragma once

// Tensor parallelism: T ranks share each layer, and each has a part of its parameters (Shoeybi et al., arXiv
// 1909.08053, section 3). This header says which parameters they divide, and where. The first matrices of a sub-layer
// are divided by outputs (queries, keys and values by whole heads), second matrices by inputs, and embedding and output
// matrix by tokens of the vocabulary. Norms, biases of second matrices and positions are whole on every rank. Files
// have whole parameters, so that they do not depend on T. model/tensor_parallel.h computes with the parts.

#include <algorithm>
#include <string_view>

#include "model_config/model_config.h"
#include "model_config/parameters.h"

namespace chimera {

/// Elements first .. first + count - 1.
struct TensorRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Dimension of a parameter that the ranks divide. If the dimension consists of several equal `blocks`, such as
/// queries, keys and values in one matrix, each rank has its share of every block.
struct TensorCut {
  std::int64_t dimension = 0;
  std::int64_t blocks = 1;
  bool of_heads = false;  ///< Each share consists of whole attention heads
};

/// The place of a rank among the ranks that share its layers.
struct TensorPlace {
  std::int64_t rank = 0;         // its number among them, from 0
  std::int64_t ranks = 1;        // T, number of ranks
  std::int64_t head_groups = 0;  // head_groups() of the model; 0: heads are divided like other elements

  /// Returns this rank's share of `size` elements: ceil(size / T) elements in order; the last ranks may have fewer.
  [[nodiscard]] TensorRange share_of(std::int64_t size) const {
    const std::int64_t each = (size + ranks - 1) / ranks;
    const std::int64_t first = std::min(rank * each, size);
    return {first, std::min(each, size - first)};
  }
  /// Returns this rank's share of `size` elements that belong to all heads: the elements of its heads.
  [[nodiscard]] TensorRange share_of_heads(std::int64_t size) const {
    if (head_groups == 0) return share_of(size);
    const TensorRange groups = share_of(head_groups);
    return {size / head_groups * groups.first, size / head_groups * groups.count};
  }
  /// Returns this rank's share of the `block` elements of one block of the dimension that `cut` names.
  [[nodiscard]] TensorRange share_of(std::int64_t block, const TensorCut& cut) const {
    return cut.of_heads ? share_of_heads(block) : share_of(block);
  }
};

/// Returns where the parameter is cut; nothing if it is whole on every rank. Keys and values may be whole too: see
/// is_cut().
[[nodiscard]] std::optional<TensorCut> tensor_cut(std::string_view parameter);

/// Returns whether T ranks divide the parameter. If T exceeds the heads of keys and values, their parameters are whole:
/// each rank has all of these heads, and uses the heads that its queries need.
[[nodiscard]] bool is_cut(const ParameterSpec& parameter, std::int64_t tensor_parallel);

/// Returns the shape of a parameter's part on a rank.
[[nodiscard]] std::vector<std::int64_t> held_shape(const ParameterSpec& parameter, const TensorPlace& place);
/// Returns the number of elements of a parameter on a rank.
[[nodiscard]] std::int64_t held_elements(const ParameterSpec& parameter, const TensorPlace& place);

/// Returns whether each rank computes only a part of the gradient of a parameter that is whole on every rank, so that
/// these gradients must be added over the T ranks once per step. These are the norms of queries and keys, which see
/// only the heads of one rank. If ranks divide the tokens (`own_tokens`, sequence parallelism), these are all
/// parameters that are whole on every rank, except the parameters of BERT's head, which sees all tokens.
[[nodiscard]] bool has_partial_gradient(std::string_view parameter, bool own_tokens);

/// Returns the number of groups of heads that `tensor_parallel` (T) ranks divide. A group is a head of keys and values
/// with its query heads. If T exceeds the heads of keys and values, each query head is a group.
[[nodiscard]] std::int64_t head_groups(const ModelConfig& model, std::int64_t tensor_parallel);
/// Returns why T ranks cannot share the model's layers; empty if they can. Every rank must get heads, a part of the
/// feed-forward width, and tokens of the vocabulary. If T exceeds the heads of keys and values, all query heads of a
/// rank must use the same one of them.
[[nodiscard]] std::string find_split_error(const ModelConfig& model, std::int64_t tensor_parallel);
/// Throws ConfigError with find_split_error(), if there is one, and the largest possible number below T.
void require_divisible(const ModelConfig& model, std::int64_t tensor_parallel);

}  // namespace chimera

#pragma once

// Layers that T ranks share (tensor parallelism, Shoeybi et al., arXiv 1909.08053, section 3). The ranks of a group run
// the same ops in the same order, each with its part of the matrices: whole heads of queries, keys and values and
// columns of the first feed-forward matrix; rows of the second matrices; rows of the vocabulary. Between them hidden
// states are whole on every rank, or each rank has 1/T of the tokens of every sequence (sequence parallelism,
// Korthikanti et al., arXiv 2205.05198):
//
//           -> enter_split() -> column-split layers -> row-split layer -> leave_split() ->
//   whole      backward: sum                                              forward: sum
//   tokens     forward: gather                                            forward: sum of own tokens
//              backward: sum of own tokens                                backward: gather
//
// A stage without a group (null) has whole layers, and these functions do nothing. model_config/tensor_cut.h says which
// parameter is cut where.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "model/linear.h"
#include "model_config/tensor_cut.h"

namespace chimera {

/// The ranks that share the layers of a stage. engine/tensor_ranks.h has one over a transport.
class TensorGroup {
 public:
  explicit TensorGroup(const TensorPlace& place, bool cuts_tokens = false) : place_(place), cuts_tokens_(cuts_tokens) {}
  virtual ~TensorGroup() = default;
  TensorGroup(const TensorGroup&) = delete;
  TensorGroup& operator=(const TensorGroup&) = delete;

  [[nodiscard]] const TensorPlace& place() const { return place_; }
  /// Returns whether each rank has 1/T of the tokens between split layers.
  [[nodiscard]] bool cuts_tokens() const { return cuts_tokens_; }
  /// Adds `values` (contiguous) over the ranks, in place, with the same bits on each. Blocks. All ranks call it in one
  /// order.
  virtual void sum(const at::Tensor& values) = 0;
  /// Returns the `values` (contiguous) of all ranks, [rank], to read before the next call. Blocks, as sum() does.
  [[nodiscard]] virtual std::vector<at::Tensor> exchange(const at::Tensor& values) = 0;

 private:
  friend class WholeTokens;
  TensorPlace place_;
  bool cuts_tokens_;
};

/// While it exists, every rank of the group has all tokens between split layers. All ranks make one between ops. A null
/// group is allowed.
class WholeTokens {
 public:
  explicit WholeTokens(TensorGroup* group)
      : group_(group), cut_(group != nullptr && std::exchange(group->cuts_tokens_, false)) {}
  WholeTokens(const WholeTokens&) = delete;
  WholeTokens& operator=(const WholeTokens&) = delete;
  ~WholeTokens() {
    if (group_ != nullptr) group_->cuts_tokens_ = cut_;
  }

 private:
  TensorGroup* group_;
  bool cut_;
};

/// Returns this rank's part of a whole tensor as a view, in which the cut dimension is two: blocks and their elements.
[[nodiscard]] at::Tensor part_view(const at::Tensor& whole, const TensorCut& cut, const TensorPlace& place);
/// Returns this rank's part of a whole tensor, with memory of its own.
[[nodiscard]] at::Tensor local_part(const at::Tensor& whole, const TensorCut& cut, const TensorPlace& place);
/// Returns the whole tensor of the ranks' parts, on every rank; `shape` is its shape. Collective.
[[nodiscard]] at::Tensor gather_whole(const at::Tensor& part, const TensorCut& cut,
                                      const std::vector<std::int64_t>& shape, TensorGroup& group);

/// Returns `whole`, the equal input of layers that are split by columns. Backward adds the ranks' gradients.
[[nodiscard]] at::Tensor replicate_input(const at::Tensor& whole, TensorGroup* group);
/// Returns all tokens [b, L, H] of `own` tokens. Backward keeps those of this rank, of gradients that are equal on all
/// ranks. Returns `own` if the group does not cut tokens.
[[nodiscard]] at::Tensor gather_tokens(const at::Tensor& own, TensorGroup* group);
/// Returns the input of layers that are split by columns: replicate_input(), or all tokens of `own` ones [b, L / T, H].
[[nodiscard]] at::Tensor enter_split(const at::Tensor& own, TensorGroup* group);
/// Returns the sum of the ranks' `part` [b, L, H] (may be overwritten), the output of a layer that is split by rows; of
/// this rank's tokens if the group cuts them.
[[nodiscard]] at::Tensor leave_split(const at::Tensor& part, TensorGroup* group);
/// Applies a layer that is split by rows to this rank's columns of the input; its bias is whole on every
/// rank.
[[nodiscard]] at::Tensor row_linear(const at::Tensor& input, const Linear& layer, TensorGroup* group);

/// Rows of the vocabulary on this rank.
struct VocabularyPart {
  TensorGroup* group = nullptr;  ///< null: all rows
  std::int64_t first = 0;
  std::int64_t all = 0;  ///< rows of all ranks
};

/// Gathers the scores of all tokens of the vocabulary, [..., V], on every rank; `scores` has those of the rank's rows.
[[nodiscard]] at::Tensor whole_scores(const at::Tensor& scores, const VocabularyPart& part);

/// Returns token_embedding() of a table that has only the rows of `part`; of this rank's tokens if the group cuts them.
[[nodiscard]] at::Tensor token_embedding(const at::Tensor& table, const at::Tensor& tokens, const VocabularyPart& part);

}  // namespace chimera

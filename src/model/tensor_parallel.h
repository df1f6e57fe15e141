#pragma once

// Tensor parallelism: T ranks, a TensorGroup, share each layer (Shoeybi et al., arXiv 1909.08053, section 3). They run
// the same ops in the same order, each with its part of the matrices. In a block, the first matrices of attention and
// of the feed-forward layer are split by columns (outputs), and the second by rows (inputs); so the ranks communicate
// only before the first and after the second. Embedding and output matrix are split by rows of the vocabulary. Outside
// of the split layers, every rank has all hidden states (whole), or 1/T of the tokens of every sequence (sequence
// parallelism, Korthikanti et al., arXiv 2205.05198). The communication in both cases:
//
//                  -> enter_split() -> column-split -> row-split -> leave_split() ->
//   whole             backward: sum                                 forward: sum
//   1/T of tokens     forward: gather all tokens                    forward: sum of own tokens
//                     backward: sum of own tokens                   backward: gather all tokens
//
// A stage without a group (null) has whole layers, and the functions below then communicate nothing.
// model_config/tensor_cut.h says which parameter is cut where. Letters in shapes: b sequences of a micro-batch, L
// tokens of a sequence, H hidden width, V vocabulary.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/scoped_value.h"
#include "model/linear.h"
#include "model_config/tensor_cut.h"

namespace chimera {

/// The ranks that share the layers of a stage. RankTensorGroup (engine/tensor_ranks.h) communicates over a transport.
class TensorGroup {
 public:
  explicit TensorGroup(const TensorPlace& place, bool cuts_tokens = false) : place_(place), cuts_tokens_(cuts_tokens) {}
  virtual ~TensorGroup() = default;
  TensorGroup& operator=(TensorGroup&&) = delete;

  [[nodiscard]] const TensorPlace& place() const { return place_; }
  /// Returns whether each rank has only 1/T of the tokens outside of split layers (sequence parallelism).
  [[nodiscard]] bool cuts_tokens() const { return cuts_tokens_; }
  /// Adds `values` (contiguous) over the ranks, in place, with the same bits on each. Blocks until all ranks have
  /// called it.
  virtual void sum(const at::Tensor& values) = 0;
  /// Returns [rank]: the `values` (contiguous) of each rank. The tensors are valid until the next call. Blocks as sum()
  /// does; all ranks make their calls of both in the same order.
  [[nodiscard]] virtual std::vector<at::Tensor> exchange(const at::Tensor& values) = 0;
  /// Adds `values` [b, L, H] over the ranks, and returns the sums of this rank's tokens, [b, L / T, H]. Returns an
  /// undefined tensor, without communication, if this would move as many bytes as exchange(); the caller then adds the
  /// results of exchange() itself.
  [[nodiscard]] virtual at::Tensor sum_own_share(const at::Tensor& /*values*/) { return {}; }

 private:
  friend class WholeTokens;
  TensorPlace place_;
  bool cuts_tokens_;
};

/// Switches sequence parallelism of a group off while an object lives, for inputs whose tokens the ranks cannot divide
/// evenly. All ranks of the group must construct and destroy theirs between the same ops. Does nothing for a null
/// group.
class WholeTokens : ScopedValue<bool> {
 public:
  explicit WholeTokens(TensorGroup* group) : ScopedValue(group != nullptr ? group->cuts_tokens_ : none_, false) {}

 private:
  inline static thread_local bool none_ = false;  // for a null group
};

/// Returns this rank's part of a whole tensor as a view. The cut dimension becomes two dimensions: blocks, and the
/// rank's elements of each block (TensorCut).
[[nodiscard]] at::Tensor part_view(const at::Tensor& whole, const TensorCut& cut, const TensorPlace& place);
/// Returns this rank's part of a whole tensor, with memory of its own.
[[nodiscard]] at::Tensor local_part(const at::Tensor& whole, const TensorCut& cut, const TensorPlace& place);
/// Joins the ranks' parts (local_part()) to the whole tensor, on every rank; `shape` is the shape of the whole tensor.
/// Collective.
[[nodiscard]] at::Tensor gather_whole(const at::Tensor& part, const TensorCut& cut,
                                      const std::vector<std::int64_t>& shape, TensorGroup& group);

/// Joins the ranks' parts in the dimension of the cut, on every rank, as if it had one block; the result has `size`
/// elements in this dimension. Collective.
[[nodiscard]] at::Tensor join_parts(const at::Tensor& part, const TensorCut& cut, std::int64_t size,
                                    TensorGroup& group);

/// Returns `whole`, the input of layers that are split by columns, which is equal on all ranks. Backward adds the
/// ranks' gradients.
[[nodiscard]] at::Tensor replicate_input(const at::Tensor& whole, TensorGroup* group);
/// Gathers the tokens of all ranks, [b, L, H]; `own` has this rank's tokens [b, L / T, H]. In backward, the gradients
/// are equal on all ranks, and each rank keeps the gradients of its tokens. Returns `own` if the group does not cut
/// tokens.
[[nodiscard]] at::Tensor gather_tokens(const at::Tensor& own, TensorGroup* group);
/// Returns the input of layers that are split by columns: `own` by replicate_input() or, if the group cuts tokens, the
/// tokens of all ranks.
[[nodiscard]] at::Tensor enter_split(const at::Tensor& own, TensorGroup* group);
/// Returns the output of a layer that is split by rows: the sum of all ranks' `part` [b, L, H]. May overwrite `part`.
/// If the group cuts tokens, returns the sums of this rank's tokens only.
[[nodiscard]] at::Tensor leave_split(const at::Tensor& part, TensorGroup* group);
/// Applies a layer that is split by rows to this rank's columns of the input, and adds the results of all ranks
/// (leave_split()); the bias is whole on every rank.
[[nodiscard]] at::Tensor row_linear(const LinearInput& input, const Linear& layer, TensorGroup* group);

/// Rows of the embedding and the output matrix, one per token of the vocabulary, that this rank has.
struct VocabularyPart {
  TensorGroup* group = nullptr;  ///< ranks that share the rows; null: this rank has all rows. Borrowed
  std::int64_t first = 0;        ///< first row on this rank
  std::int64_t all = 0;          ///< number of rows of all ranks
};

/// Gathers the scores of all tokens of the vocabulary, [..., V], on every rank; `scores` has the scores of the rank's
/// rows.
[[nodiscard]] at::Tensor whole_scores(const at::Tensor& scores, const VocabularyPart& part);

/// Returns token_embedding() (layers.h) for a table that is divided over the ranks; `table` has the rows of `part`.
/// If the group cuts tokens, returns the embeddings of this rank's tokens only.
[[nodiscard]] at::Tensor token_embedding(const at::Tensor& table, const at::Tensor& tokens, const VocabularyPart& part);

}  // namespace chimera

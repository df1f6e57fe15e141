#pragma once

// A causal model whose stages lie on several ranks, for inference. Each rank runs its stages in turn and sends hidden
// states on; the rank with the last stage chooses the next token, and a sum over all ranks distributes it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "model/carried_key_values.h"
#include "model/stage.h"
#include "model/transformer_stage.h"
#include "tokenizer/tokenizer.h"
#include "transport/transport.h"

namespace chimera {

/// Ranks of the stages of a replica.
struct StageRanks {
  std::vector<RankId> holders;  ///< [stage]; a rank may hold several stages
  RankId self;                  ///< calling rank
};

/// Replica of a causal model over the ranks. All ranks, even without stages, must call its functions in the same order
/// with the same arguments.
class DistributedModel {
 public:
  /// `stages` are the stages of GPT-2 or Llama on this rank; stages that `ranks` assigns to other ranks are ignored.
  /// `hidden` and `dtype` are the width and type of hidden states. Borrows stages and transport.
  DistributedModel(const std::map<StageId, Stage*>& stages, StageRanks ranks, Transport& transport, std::int64_t hidden,
                   at::ScalarType dtype, at::Device device = at::kCPU);

  /// Begins a sequence of at most `tokens` tokens.
  void begin(std::int64_t tokens);

  /// Called on one rank, with scores [V].
  using Choose = std::function<std::int64_t(const at::Tensor& logits)>;
  /// Appends `tokens` (at least one) to the sequence. Returns the next token, chosen by `choose`, on all ranks. Throws
  /// as Transport does.
  [[nodiscard]] TokenId next(std::span<const TokenId> tokens, const Choose& choose);

 private:
  [[nodiscard]] bool holds(std::size_t stage) const { return ranks_.holders[stage] == ranks_.self; }
  /// Returns the scores after `tokens`; undefined on ranks without the last stage.
  [[nodiscard]] at::Tensor read(std::span<const TokenId> tokens);
  [[nodiscard]] at::Tensor run(std::size_t stage, const at::Tensor& input, std::span<const TokenId> tokens);
  [[nodiscard]] MessageTag tag(std::size_t stage) const;

  std::map<std::size_t, const TransformerStage*> stages_;
  StageRanks ranks_;
  Transport& transport_;
  std::int64_t hidden_;
  at::ScalarType dtype_;
  at::Device device_;
  std::map<std::size_t, std::shared_ptr<CarriedKeyValues>> carried_;  // [stage]
  std::int64_t length_ = 0;                                           // tokens of the sequence so far
  std::int64_t reads_ = 0;                                            // in message tags
};

}  // namespace chimera

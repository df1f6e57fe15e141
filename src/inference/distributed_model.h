#pragma once

// A causal model whose stages (consecutive layers) are on several ranks, for inference. Each rank runs its stages in
// turn and sends hidden states to the rank of the next stage. The rank with the last stage chooses the next token, and
// a sum to which the other ranks add zero distributes it. continuation.h generates text with it.

#include <map>

#include "model/key_value_cache.h"
#include "model/stage.h"
#include "model/transformer_stage.h"
#include "tokenizer/tokenizer.h"
#include "transport/transport.h"

namespace chimera {

/// Which rank runs each stage in inference.
struct StageRanks {
  std::vector<RankId> holders;  ///< [stage]; a rank may hold several stages
  RankId self;                  ///< calling rank
  bool is_copy = false;         ///< tensor parallelism: another rank chooses the same token, so this one adds zero
};

/// One replica of a causal model, whose stages are on several ranks. All ranks, also those without a stage, must call
/// its functions in the same order with the same arguments.
class DistributedModel {
 public:
  /// `stages` are this rank's stages of GPT-2 or Llama; stages that `ranks` assigns to other ranks are ignored.
  /// `hidden` and `dtype` are the width and type of hidden states. Borrows stages and transport.
  DistributedModel(const std::map<StageId, Stage*>& stages, StageRanks ranks, Transport& transport, std::int64_t hidden,
                   at::ScalarType dtype, at::Device device = at::kCPU);

  /// Begins a sequence of at most `tokens` tokens, prompt and new tokens together. Forgets the sequence before. Call it
  /// before next().
  void begin(std::int64_t tokens);

  /// Function that chooses the next token from the logits [V] of the last token. Only the rank with the last stage
  /// calls it.
  using Choose = std::function<std::int64_t(const at::Tensor& logits)>;
  /// Appends `tokens` (at least one) to the sequence. Returns the next token, chosen by `choose`, on all ranks, but
  /// does not append it. Throws TransportError if a rank is lost, and the errors of `choose`.
  [[nodiscard]] TokenId next(std::span<const TokenId> tokens, const Choose& choose);

 private:
  [[nodiscard]] bool holds(std::size_t stage) const { return ranks_.holders[stage] == ranks_.self; }
  /// Runs `tokens` through the stages. Returns the logits of the last token; undefined on ranks without the last stage.
  [[nodiscard]] at::Tensor read(std::span<const TokenId> tokens);
  [[nodiscard]] at::Tensor run(std::size_t stage, const at::Tensor& input, std::span<const TokenId> tokens);
  [[nodiscard]] MessageTag tag(std::size_t stage) const;

  std::map<std::size_t, const TransformerStage*> stages_;
  StageRanks ranks_;
  Transport& transport_;
  std::int64_t hidden_;
  at::ScalarType dtype_;
  at::Device device_;
  std::map<std::size_t, std::shared_ptr<KeyValueCache>> key_value_caches_;  // [stage]
  std::int64_t length_ = 0;                                                 // tokens of the sequence so far
  std::int64_t reads_ = 0;                                                  // number of read() calls, for message tags
};

}  // namespace chimera

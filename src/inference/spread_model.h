#pragma once
// A causal model that continues token sequences, its stages on one rank or on several.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "model/key_value_cache.h"
#include "model/stage.h"
#include "model/transformer_stage.h"
#include "tokenizer/tokenizer.h"
#include "transport/transport.h"

namespace chimera {

/// Where the stages of one copy of a model lie.
struct StageRanks {
  std::vector<RankId> holders;  ///< [stage]; one rank may hold several
  RankId self;                  ///< the calling one, which need not hold any
};

/// One copy of a model, as each rank of the transport sees it. All ranks call its functions in the same order with the
/// same arguments, those too that hold no stage of the copy. Hidden states travel from stage to stage, the token that
/// was chosen to all.
class SpreadModel {
 public:
  /// `stages`: those that this rank holds, with or without those of other copies; all of GPT-2 or Llama. `message`:
  /// type and last size of hidden states. Tokens are read on `device`. All are borrowed.
  SpreadModel(const std::map<StageId, Stage*>& stages, StageRanks ranks, Transport& transport, std::int64_t hidden,
              at::ScalarType dtype, at::Device device = at::kCPU);

  /// Begins a sequence of at most `tokens` tokens and forgets the one before.
  void begin(std::int64_t tokens);

  /// Chooses a token by the scores [V] that follow a sequence; called on one rank.
  using Choose = std::function<std::int64_t(const at::Tensor& logits)>;
  /// Reads `tokens`, at least one, behind those that it has read of the sequence, and returns the token that `choose`
  /// chooses after them, on all ranks. Throws what Transport throws.
  [[nodiscard]] TokenId next(std::span<const TokenId> tokens, const Choose& choose);

 private:
  [[nodiscard]] bool holds(std::size_t stage) const { return ranks_.holders[stage] == ranks_.self; }
  /// The scores after `tokens` where this rank holds the last stage; undefined elsewhere.
  [[nodiscard]] at::Tensor read(std::span<const TokenId> tokens);
  [[nodiscard]] at::Tensor run(std::size_t stage, const at::Tensor& input, std::span<const TokenId> tokens);
  [[nodiscard]] at::Tensor received(std::size_t from, std::int64_t tokens);
  void send(std::size_t stage, const at::Tensor& hidden);
  [[nodiscard]] MessageTag tag(std::size_t stage) const;

  std::map<std::size_t, const TransformerStage*> stages_;
  StageRanks ranks_;
  Transport& transport_;
  std::int64_t hidden_;
  at::ScalarType dtype_;
  at::Device device_;
  std::map<std::size_t, KeyValueCache> caches_;  // [stage]
  std::int64_t reads_ = 0;                       // which is what messages are numbered by
};

}  // namespace chimera

#include "inference/distributed_model.h"

#include <ATen/ATen.h>

#include <array>
#include <utility>

namespace chimera {

DistributedModel::DistributedModel(const std::map<StageId, Stage*>& stages, StageRanks ranks, Transport& transport,
                                   std::int64_t hidden, at::ScalarType dtype, at::Device device)
    : ranks_(std::move(ranks)), transport_(transport), hidden_(hidden), dtype_(dtype), device_(device) {
  for (const auto& [id, stage] : stages) {
    // A bidirectional schedule has several replicas of the model; inference uses the stages of one.
    if (holds(id.index())) stages_.emplace(id.index(), &dynamic_cast<const TransformerStage&>(*stage));
  }
}

void DistributedModel::begin(std::int64_t tokens) {
  length_ = 0;
  for (const auto& [index, stage] : stages_) key_value_caches_[index] = std::make_shared<KeyValueCache>(tokens);
}

TokenId DistributedModel::next(std::span<const TokenId> tokens, const Choose& choose) {
  const at::NoGradGuard no_graph;
  const at::Tensor logits = read(tokens);
  // The other ranks add zero: a sum distributes the token without a rank that broadcasts.
  std::array<double, 1> token = {logits.defined() ? static_cast<double>(choose(logits)) : 0.0};
  transport_.all_sum(token);
  return static_cast<TokenId>(token[0]);
}

at::Tensor DistributedModel::read(std::span<const TokenId> tokens) {
  ++reads_;
  const std::size_t last = ranks_.holders.size() - 1;
  at::Tensor hidden;
  for (std::size_t stage = 0; stage <= last; ++stage) {
    if (!holds(stage)) continue;
    if (stage > 0 && !holds(stage - 1)) {
      // A batch of one sequence.
      const TensorSpec spec{{1, std::ssize(tokens), hidden_}, dtype_};
      hidden = transport_.post_receive(ranks_.holders[stage - 1], spec, tag(stage - 1))->wait();
    }
    hidden = run(stage, hidden, tokens);
    if (stage < last && !holds(stage + 1))
      transport_.start_send(ranks_.holders[stage + 1], hidden.contiguous(), tag(stage))->wait();
  }
  length_ += std::ssize(tokens);
  // Only the last token's scores are computed: the head is the largest product.
  if (!holds(last)) return {};
  const at::Tensor logits = stages_.at(last)->logits(hidden.narrow(1, std::ssize(tokens) - 1, 1)).flatten();
  return ranks_.is_copy ? at::Tensor() : logits;
}

at::Tensor DistributedModel::run(std::size_t stage, const at::Tensor& input, std::span<const TokenId> tokens) {
  MicroBatch batch{.key_value_cache = key_value_caches_.at(stage), .first_token = length_};
  if (stage == 0) {
    const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
    batch.tokens = at::tensor(ids, at::kLong).unsqueeze(0).to(device_);
  }
  return stages_.at(stage)->hidden_states(input, batch);
}

MessageTag DistributedModel::tag(std::size_t stage) const {
  const auto number = static_cast<std::int64_t>(stage);
  return {.step = reads_, .op = {OpKind::Forward, ReplicaId(0), StageId(number), MicroBatchId(0)}};
}

}  // namespace chimera

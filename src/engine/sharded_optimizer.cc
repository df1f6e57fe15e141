#include "engine/sharded_optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "engine/make_optimizer.h"
#include "runtime/worker_context.h"

namespace chimera {
namespace {

class ShardedStage {
 public:
  ShardedStage(const OptimizerOptions& options, ParameterGroupId id, ParameterGroup& stage, std::size_t members,
               std::size_t own, const SumOverParts& sum)
      : id_(id), stage_(stage), own_(own) {
    for (std::size_t member = 0; member < members; ++member) {
      shards_.push_back(owned_parameters(stage, members, member));
      std::int64_t& count = counts_.emplace_back(0);
      for (const Parameter& parameter : shards_.back()) count += parameter.value.numel();
    }
    optimizer_ = make_optimizer(options, shards_[own], sum);  // Of nothing, if a stage has fewer parameters than copies
  }

  void start(Transport& transport) {
    if (shards_.size() == 1) return;
    for_each_slot([&](std::size_t member, at::Tensor& value, const at::Tensor& slot) {
      if (member == own_) slot.copy_(value);
    });
    gather_ = transport.start_all_gather(id_, stage_.gradients(), counts_);
  }

  void finish() {
    if (!gather_) return;
    std::exchange(gather_, nullptr)->wait();
    for_each_slot([&](std::size_t member, at::Tensor& value, const at::Tensor& slot) {
      if (member != own_) value.copy_(slot);
    });
  }

  [[nodiscard]] Optimizer& optimizer() const { return *optimizer_; }

 private:
  /// `slot` is the parameter's place in the gather buffer.
  template <class Visit>
  void for_each_slot(Visit&& visit) {
    std::int64_t offset = 0;
    for (std::size_t member = 0; member < shards_.size(); ++member) {
      for (Parameter& parameter : shards_[member]) {
        at::Tensor& value = parameter.value;
        visit(member, value, stage_.gradients().narrow(0, offset, value.numel()).view(value.sizes()));
        offset += value.numel();
      }
    }
  }

  ParameterGroupId id_;
  ParameterGroup& stage_;
  std::size_t own_;
  std::vector<std::vector<Parameter>> shards_;  // [member]
  std::vector<std::int64_t> counts_;            // [member] elements
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Pending> gather_;
};

class ShardedOptimizer final : public Optimizer {
 public:
  ShardedOptimizer(std::vector<ShardedStage> stages, Transport& transport)
      : stages_(std::move(stages)), transport_(transport) {}

  /// Overlaps a stage's all-gather with the next stage's update.
  void step(double learning_rate, double gradient_factor) override {
    const at::NoGradGuard no_grad;
    for (ShardedStage& stage : stages_) {
      stage.optimizer().step(learning_rate, gradient_factor);
      stage.start(transport_);
    }
    for (ShardedStage& stage : stages_) stage.finish();
  }

  [[nodiscard]] std::int64_t state_bytes() const override {
    std::int64_t bytes = 0;
    for (const ShardedStage& stage : stages_) bytes += stage.optimizer().state_bytes();
    return bytes;
  }

  [[nodiscard]] std::vector<OptimizerTensor> state() const override {
    std::vector<OptimizerTensor> tensors;
    for (const ShardedStage& stage : stages_) {
      for (OptimizerTensor& tensor : stage.optimizer().state()) tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

  void set_steps(std::int64_t steps) override {
    for (const ShardedStage& stage : stages_) stage.optimizer().set_steps(steps);
  }

 private:
  std::vector<ShardedStage> stages_;
  Transport& transport_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sharded_optimizer(const OptimizerOptions& options,
                                                  const std::map<ParameterGroupId, ParameterGroup*>& trained,
                                                  const RankGroups& groups, RankId rank, Transport& transport,
                                                  const SumOverParts& sum) {
  std::vector<ShardedStage> sharded;
  for (const auto& [id, held] : trained) {
    const auto& group = groups[id.index()];
    const auto place = std::find(group.begin(), group.end(), rank) - group.begin();
    sharded.emplace_back(options, id, *held, group.size(), static_cast<std::size_t>(place), sum);
  }
  return std::make_unique<ShardedOptimizer>(std::move(sharded), transport);
}

}  // namespace chimera

#include "engine/sharded_optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"
#include "runtime/worker_context.h"

namespace chimera {
namespace {

/// One parameter group: the optimizer of this rank's parameters, and the all-gather that sends all of them around. The
/// flat gradients serve as the buffer: slots lie in it one after the other without padding, so places differ from those
/// of the gradients.
class ShardedStage {
 public:
  /// `shards` is [shard]: the members that update it.
  ShardedStage(const OptimizerOptions& options, ParameterGroupId id, ParameterGroup& stage,
               const std::vector<RankId>& members, const RankGroups& shards, RankId own, TensorGroup* tensor)
      : id_(id), stage_(stage), counts_(members.size()) {
    std::vector<Parameter> updated;
    for (std::size_t shard = 0; shard < shards.size(); ++shard) {
      const bool is_own = std::ranges::find(shards[shard], own) != shards[shard].end();
      // With two owners, the first sends; the other has the same bits and stays silent.
      const auto sender = std::ranges::find(members, shards[shard].front()) - members.begin();
      for (const Parameter& parameter : owned_parameters(stage, shards.size(), shard)) {
        slots_.push_back({parameter.value, static_cast<std::size_t>(sender), shards[shard].front() == own, is_own});
        counts_[static_cast<std::size_t>(sender)] += parameter.value.numel();
        if (is_own) updated.push_back(parameter);
      }
    }
    std::ranges::stable_sort(slots_, {}, &Slot::sender);    // The order of an all-gather
    optimizer_ = make_optimizer(options, updated, tensor);  // Of nothing, if a stage has fewer parameters than copies
  }

  void start(Transport& transport) {
    // The only holder of the stage has all new values.
    if (counts_.size() == 1) return;
    for_each_slot([](Slot& slot, const at::Tensor& place) {
      // The places of other senders are overwritten by the gather.
      if (slot.is_sent) place.copy_(slot.value);
    });
    gather_ = transport.start_all_gather(id_, stage_.gradients(), counts_);
  }

  void finish() {
    if (!gather_) return;
    std::exchange(gather_, nullptr)->wait();
    for_each_slot([](Slot& slot, const at::Tensor& place) {
      // A second owner keeps what it has computed itself.
      if (!slot.is_own) slot.value.copy_(place);
    });
  }

  void drop() { gather_ = nullptr; }

  [[nodiscard]] Optimizer& optimizer() const { return *optimizer_; }

 private:
  struct Slot {
    at::Tensor value;        // A parameter
    std::size_t sender = 0;  // Member
    bool is_sent = false;    // By this rank
    bool is_own = false;     // This rank updates it
  };

  /// `place` is the parameter's place in the gather buffer.
  template <class Visit>
  void for_each_slot(Visit&& visit) {
    std::int64_t offset = 0;
    for (Slot& slot : slots_) {
      const std::int64_t count = slot.value.numel();
      visit(slot, stage_.gradients().narrow(0, offset, count).view(slot.value.sizes()));
      offset += count;
    }
  }

  ParameterGroupId id_;
  ParameterGroup& stage_;
  std::vector<Slot> slots_;
  std::vector<std::int64_t> counts_;  // [member] elements
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
    std::size_t updated = 0;
    try {
      while (updated < stages_.size()) {
        // The counter moves before the update, so that the handler below does not repeat an update that was made.
        ShardedStage& stage = stages_[updated++];
        stage.optimizer().step(learning_rate, gradient_factor);
        stage.start(transport_);
      }
      for (ShardedStage& stage : stages_) stage.finish();
    } catch (const TransportError&) {
      // Every rank completes the updates of its own parameters. After the recovery, share() sends them around.
      for (; updated < stages_.size(); ++updated) stages_[updated].optimizer().step(learning_rate, gradient_factor);
      for (ShardedStage& stage : stages_) stage.drop();
      throw;
    }
  }

  void step_alone(double learning_rate, double gradient_factor) override {
    const at::NoGradGuard no_grad;
    for (ShardedStage& stage : stages_) stage.optimizer().step(learning_rate, gradient_factor);
  }

  void share() override {
    const at::NoGradGuard no_grad;
    for (ShardedStage& stage : stages_) stage.start(transport_);
    for (ShardedStage& stage : stages_) stage.finish();
  }

  [[nodiscard]] std::vector<OptimizerTensor> state() const override {
    std::vector<OptimizerTensor> tensors;
    for (const ShardedStage& stage : stages_)
      for (OptimizerTensor& tensor : stage.optimizer().state()) tensors.push_back(std::move(tensor));
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
                                                  TensorGroup* tensor, const std::vector<RankGroups>& shards) {
  std::vector<ShardedStage> sharded;
  for (const auto& [id, held] : trained) {
    const std::vector<RankId>& group = groups[id.index()];
    const RankGroups holders = shards.empty() ? shard_holders(group, /*twice=*/false) : shards[id.index()];
    sharded.emplace_back(options, id, *held, group, holders, rank, tensor);
  }
  return std::make_unique<ShardedOptimizer>(std::move(sharded), transport);
}

/// Pairs, so that the state survives the loss of a rank of each pair.
RankGroups shard_holders(const std::vector<RankId>& group, bool twice) {
  RankGroups shards;
  for (std::size_t i = 0; i < group.size(); ++i) {
    shards.push_back({group[i]});
    // Even numbers of ranks form pairs (0, 1), (2, 3); an odd number forms a ring, in which each rank helps the one
    // before.
    if (twice) shards.back().push_back(group[group.size() % 2 == 0 ? i ^ 1U : (i + 1) % group.size()]);
  }
  return shards;
}

}  // namespace chimera

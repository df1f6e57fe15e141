#pragma once

// The part of the model that a rank trains: its stages, the tied matrix (the token embedding and output matrix of some
// models, which the first and the last stage share) if it uses it, and the state of their optimizers. A synchronous
// schedule has one optimizer for everything on the rank; an asynchronous schedule updates each stage by itself and has
// one per stage. All state is divided into parameter groups (one per stage, then the tied matrix), which is the unit in
// which ranks sum gradients, compare replicas and send state to a replacement.

#include <map>
#include <set>
#include <string_view>

#include "engine/optimizer.h"
#include "model/parameter_group.h"
#include "model/stage.h"
#include "train/setup/rank_context.h"

namespace chimera {

/// Which weights a rank has at its start.
enum class WeightOrigin : std::uint8_t {
  Own,          ///< Initial weights, or the weights of the checkpoint that the job resumes
  Replacement,  ///< None yet: this rank replaces a lost one, and receives its state from another rank
};

/// Weights and optimizer state of one rank. Borrows the context.
class TrainedModel {
 public:
  TrainedModel(const RankContext& self, WeightOrigin origin);

  /// Stages and tied matrix, with their gradients.
  struct Weights {
    std::map<StageId, std::unique_ptr<Stage>> stages;
    std::unique_ptr<TiedWeight> tied;
    std::set<ParameterGroupId> lacking;  ///< Groups without values until note_received() is called
  };
  /// The state of a model, to continue with it in another context. Two models may share it, but only one may be used.
  struct Kept {
    std::shared_ptr<Weights> weights;
    std::vector<OptimizerTensor> optimizer;
    std::int64_t updates = 0;
  };
  /// Continues with the state of another model, whose weights it takes. Copies the optimizer state. Drops stages that
  /// the rank no longer holds; new stages lack values.
  TrainedModel(const RankContext& self, const Kept& kept);
  /// Returns this model's state, after `updates` updates.
  [[nodiscard]] Kept keep(std::int64_t updates) const {
    return {.weights = weights_, .optimizer = optimizer_state(), .updates = updates};
  }

  [[nodiscard]] std::map<StageId, Stage*> stages() const;
  /// Returns the tied matrix; null if this rank does not use it.
  [[nodiscard]] TiedWeight* tied() const { return weights_->tied.get(); }
  /// Returns stages and tied matrix.
  [[nodiscard]] const std::map<ParameterGroupId, ParameterGroup*>& groups() const { return groups_; }
  /// Adds partial gradients (model_config/tensor_cut.h) over the ranks that share the layers, of all stages or of one.
  /// Call it once before an update, when all gradients are complete. Collective over these ranks.
  void complete_gradients(std::optional<StageId> stage = {}) const;
  /// Returns the parameters of own_groups() with whole values; nothing on ranks other than the first that shares the
  /// layers. Collective over these ranks.
  [[nodiscard]] std::vector<Parameter> whole_parameters() const;
  /// Returns the groups that this rank exports and hashes: of the ranks that hold a group, its first worker in
  /// data-parallel group 0 does so.
  [[nodiscard]] std::vector<const ParameterGroup*> own_groups() const;

  /// Returns the optimizer of a synchronous schedule.
  [[nodiscard]] Optimizer& optimizer() const { return *optimizers_.at(std::nullopt); }
  /// Returns the optimizer of a stage in an asynchronous schedule.
  [[nodiscard]] Optimizer& optimizer(StageId stage) const { return *optimizers_.at(stage); }
  [[nodiscard]] std::vector<OptimizerTensor> optimizer_state() const;
  /// Injects a fault (core/fault_point.h) at `point`: flips a bit in the first element of tensor `tensor` in state_of()
  /// of the first group: 0 is a weight, 1 its optimizer state.
  void inject_bit_flip(std::string_view point, std::size_t tensor) const;
  /// Updates the bfloat16 copies of the weights (mixed precision) after the weights have changed.
  void update_copies() const;

  /// Returns weights and optimizer state of a group or of one shard, in the same order on all its ranks. For a group,
  /// omits sharded optimizer state.
  [[nodiscard]] std::vector<at::Tensor> state_of(ParameterGroupId group, std::optional<std::size_t> shard = {}) const;
  /// Returns the part of state_of() that all ranks with tensor parallelism hold in full, such as norms.
  [[nodiscard]] std::vector<at::Tensor> whole_state_of(ParameterGroupId group) const;
  /// Copies the state of a group or of one shard from rank `from` to rank `to` of the same lane
  /// (engine/tensor_ranks.h), one tensor at a time to limit memory. Both are numbers among all ranks. `step` is the
  /// last completed step, for the tags of the messages. Call it on both; other ranks do nothing. Throws TransportError.
  void transfer_state(ParameterGroupId group, RankId from, RankId to, std::int64_t step,
                      std::optional<std::size_t> shard = {}) const;

  /// Returns the groups without values. A replacement lacks all until note_received() is called.
  [[nodiscard]] const std::set<ParameterGroupId>& lacking() const { return weights_->lacking; }
  /// Returns whether some group has values.
  [[nodiscard]] bool has_weights() const { return lacking().size() < groups_.size(); }
  /// Completes the state that transfer_state() has filled, after `updates` updates.
  void note_received(std::int64_t updates);

 private:
  [[nodiscard]] std::vector<at::Tensor> state_in(const std::vector<Parameter>& parameters, bool with_optimizer) const;
  void make_weights(WeightOrigin origin);
  void make_optimizers();

  const RankContext& self_;
  std::shared_ptr<Weights> weights_;
  std::map<ParameterGroupId, ParameterGroup*> groups_;
  std::map<std::optional<StageId>, std::unique_ptr<Optimizer>> optimizers_;  // By stage; empty key: of all stages
};

}  // namespace chimera

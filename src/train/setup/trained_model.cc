#include "train/setup/trained_model.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/fault_point.h"
#include "core/invariant.h"
#include "core/mapped.h"
#include "engine/muon.h"
#include "engine/sharded_optimizer.h"
#include "engine/stored_values.h"
#include "launch/local/rank.h"
#include "model_config/parameters.h"
#include "runtime/worker_context.h"
#include "train/setup/device.h"
#include "train/setup/job_checkpoints.h"

// The weights of a rank and their optimizers. Weights are shared with the model that replaces this one after a change
// of the running ranks, so they are made one by one, and only where they do not exist yet. What a rank should hold but
// has no values of is `lacking`, until another rank has sent it.

namespace chimera {
namespace {

InitialValue initial_value(const RankContext& self, WeightOrigin origin) {
  const auto& job = self.job;
  if (origin == WeightOrigin::Replacement) {
    return [](const ParameterSpec& parameter, const at::TensorOptions& options, const TensorPlace& place) {
      // Another rank sends the values, so nothing is read and no random numbers are drawn.
      return at::empty(held_shape(parameter, place), options);
    };
  }
  return [value = job.first_step > 0 ? resumed_values(*job.checkpoints->resumed, job.model)
                                     : folder_or_random_values(job.from, job.options.data.seed)](
             const ParameterSpec& parameter, const at::TensorOptions& options, const TensorPlace& place) {
    note_progress({RankProgress::Phase::StartUp});  // Large stages take long
    return value(parameter, options, place);
  };
}

}  // namespace

TrainedModel::TrainedModel(const RankContext& self, WeightOrigin origin)
    : self_(self), weights_(std::make_shared<Weights>()) {
  make_weights(origin);
  make_optimizers();
  if (self.job.first_step == 0) return;
  for (const auto& [id, optimizer] : optimizers_)
    resume_optimizer(*self.job.checkpoints->resumed, self.job.model, *optimizer, self_.tensor.get());
}

/// Makes the weights that do not exist yet, and lists the groups.
void TrainedModel::make_weights(WeightOrigin origin) {
  const JobShape& job = self_.job;
  const TrainOptions& options = self_.job.options;
  const at::ScalarType dtype = scalar_type(options.numbers.dtype);
  const InitialValue value = initial_value(self_, origin);
  const std::vector<StageId> held = job.run.stages_of(self_.place.worker);
  const auto holds = [&](std::int64_t stage) { return std::ranges::binary_search(held, StageId(stage)); };
  // Both ends read one tied matrix. It is made first, because the stages take its leaves.
  const TiedUses uses{holds(0), holds(job.run.schedule.stages - 1)};
  auto& stages = weights_->stages;
  auto& tied_weight = weights_->tied;
  const auto note_made = [&](ParameterGroupId group) {
    if (origin == WeightOrigin::Replacement) weights_->lacking.insert(group);
  };
  if (job.model.tied && uses.any() && !tied_weight) {
    tied_weight = make_tied_weight(job.model, uses, dtype, value, self_.device, self_.tensor.get());
    note_made(tied_matrix(job.run.schedule.stages));
  }
  const TiedLeaves tied = tied_weight ? tied_weight->leaves() : TiedLeaves{};
  // Second shards keep owners by size: a division must last, also after a change of the running ranks.
  const bool shares_work =
      options.memory.shard_optimizer && options.updates.optimizer.kind == OptimizerKind::Muon && !job.has_second_shards;
  const RankGroups ranks = job.run.rank_groups();
  // Stages that this rank no longer holds end with `before`.
  auto before = std::exchange(stages, {});
  stages = make_stages_of_worker(job.run, self_.place.worker, [&](StageId id) {
    if (const auto kept = before.find(id); kept != before.end()) return std::move(kept->second);
    note_made(parameters_of(id));
    const auto owners = [&](const std::vector<Parameter>& parameters) {
      if (!shares_work) return std::vector<std::size_t>{};
      return muon_owners(options.updates.optimizer, parameters, ranks[parameters_of(id).index()].size());
    };
    const OwnerScope scope(owners);
    return make_stage(job.model, job.partition[id.index()], dtype, value, tied, self_.device, self_.tensor.get());
  });
  for (const auto& [id, stage] : stages) groups_[parameters_of(id)] = stage.get();
  if (tied_weight) groups_[tied_matrix(job.run.schedule.stages)] = tied_weight.get();
  // A copy that was announced but never sent, because the running ranks have changed again.
  std::erase_if(weights_->lacking, [&](ParameterGroupId group) { return !groups_.contains(group); });
}

TrainedModel::TrainedModel(const RankContext& self, const Kept& kept) : self_(self), weights_(kept.weights) {
  make_weights(WeightOrigin::Replacement);
  const at::NoGradGuard no_grad;
  make_optimizers();
  std::map<std::pair<std::string, std::string>, at::Tensor> values;
  for (const auto& [parameter, kind, value] : kept.optimizer) values[{parameter, kind}] = value;
  // Copied by name: the new optimizer may hold more parameters than the old one, or in another order.
  for (OptimizerTensor& tensor : optimizer().state()) {
    // A group that is new on this rank is not there. It is lacking, and its state comes from another rank.
    const auto value = values.find({tensor.parameter, tensor.kind});
    if (value != values.end()) tensor.value.copy_(value->second);
  }
  optimizer().set_steps(kept.updates);
}

void TrainedModel::make_optimizers() {
  const JobShape& job = self_.job;
  OptimizerOptions options = self_.job.options.updates.optimizer;
  // Without --muon-dtype, Muon iterates in the type of the layers.
  if (!options.muon.iterations) options.muon.iterations = self_.job.options.numbers.dtype;
  const RankGroups ranks = job.run.rank_groups();
  TensorGroup* const tensor = self_.tensor.get();
  // An asynchronous schedule updates each stage at its own time, so each has an optimizer.
  if (job.run.schedule.updates) {
    for (const auto& [id, stage] : weights_->stages) optimizers_[id] = make_optimizer(options, {stage.get()}, tensor);
  } else if (self_.job.options.memory.shard_optimizer) {
    // The ranks of a stage divide its optimizer state here, and only the work of Muon's iterations below. Otherwise
    // each updates its copy of the stage by itself.
    optimizers_[std::nullopt] =
        make_sharded_optimizer(options, groups_, ranks, self_.rank, self_.transport, tensor, job.shards());
  } else if (options.kind == OptimizerKind::Muon) {
    optimizers_[std::nullopt] = make_shared_muon(options, groups_, ranks, self_.rank, self_.transport, tensor);
  } else {
    const auto in_order = mapped(groups_, [](const auto& each) { return each.second; });
    optimizers_[std::nullopt] = make_optimizer(options, in_order, tensor);
  }
}

std::map<StageId, Stage*> TrainedModel::stages() const { return borrow<Stage>(weights_->stages); }

std::vector<const ParameterGroup*> TrainedModel::own_groups() const {
  const WorkerGroups workers = self_.job.run.worker_groups();
  // The first worker of each group, in data-parallel group 0: over all ranks, each parameter is in one list.
  std::vector<const ParameterGroup*> own;
  for (const auto& [id, group] : groups_)
    if (self_.place.group == GroupId(0) && workers[id.index()].front() == self_.place.worker) own.push_back(group);
  return own;
}

void TrainedModel::complete_gradients(std::optional<StageId> stage) const {
  if (!self_.tensor) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const auto& [id, group] : groups_) {
    if (stage && id != parameters_of(*stage)) continue;
    for (const Parameter& parameter : group->parameters()) {
      // All heads of keys and values, of which the rank has used some
      const bool has_all_keys = parameter.whole_elements == 0 && tensor_cut(parameter.name);
      if (has_all_keys || has_partial_gradient(parameter.name, self_.tensor->cuts_tokens()))
        gradients.push_back(parameter.value.grad().view({-1}));
    }
  }
  if (gradients.empty()) return;
  // Copied back below, because an all-reduce needs contiguous memory and gradients belong to their parameters.
  const at::Tensor all = at::cat(gradients);  // One sum instead of one for each
  self_.tensor->sum(all);
  std::int64_t first = 0;
  for (at::Tensor& gradient : gradients) {
    gradient.copy_(all.narrow(0, first, gradient.numel()));
    first += gradient.numel();
  }
}

std::vector<Parameter> TrainedModel::whole_parameters() const {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  if (self_.tensor)
    for (ParameterSpec& spec : all_parameters(self_.job.model)) shapes.emplace(spec.name, std::move(spec.shape));
  std::vector<Parameter> whole;
  for (const ParameterGroup* group : own_groups()) {
    for (Parameter parameter : group->parameters()) {
      if (parameter.whole_elements > 0) {
        parameter.value =
            gather_whole(parameter.value, *tensor_cut(parameter.name), shapes.at(parameter.name), *self_.tensor);
      }
      // All ranks of a worker gather, but one of them has the result.
      if (!self_.is_copy()) whole.push_back(std::move(parameter));
    }
  }
  return whole;
}

std::vector<OptimizerTensor> TrainedModel::optimizer_state() const {
  std::vector<OptimizerTensor> state;
  for (const auto& [id, optimizer] : optimizers_)
    for (OptimizerTensor& tensor : optimizer->state()) state.push_back(std::move(tensor));
  return state;
}

void TrainedModel::update_copies() const {
  for (const auto& [id, stage] : weights_->stages) stage->update_copies();
}

std::vector<at::Tensor> TrainedModel::state_of(ParameterGroupId group, std::optional<std::size_t> shard) const {
  const ParameterGroup& whole = *groups_.at(group);
  return state_in(
      shard ? owned_parameters(whole, self_.job.shards()[group.index()].size(), *shard) : whole.parameters(),
      shard || !self_.job.options.memory.shard_optimizer);
}

std::vector<at::Tensor> TrainedModel::whole_state_of(ParameterGroupId group) const {
  std::vector<Parameter> whole = groups_.at(group)->parameters();
  std::erase_if(whole, [](const Parameter& parameter) { return parameter.whole_elements > 0; });
  return state_in(whole, !self_.job.options.memory.shard_optimizer);
}

std::vector<at::Tensor> TrainedModel::state_in(const std::vector<Parameter>& parameters, bool with_optimizer) const {
  std::vector<OptimizerTensor> remembered;
  if (with_optimizer) remembered = optimizer_state();
  std::vector<at::Tensor> tensors;
  for (const Parameter& parameter : parameters) {
    tensors.push_back(parameter.value.detach());
    for (const OptimizerTensor& state : remembered)
      if (state.parameter == parameter.name) tensors.push_back(state.value);
  }
  return tensors;
}

void TrainedModel::transfer_state(ParameterGroupId group, RankId from, RankId to, std::int64_t step,
                                  std::optional<std::size_t> shard) const {
  // Called on all ranks, since all know the same list of transfers.
  if (self_.world_rank != from && self_.world_rank != to) return;
  const TensorRanks ranks = self_.job.ranks();
  const at::NoGradGuard no_grad;
  // No op sends this state, so the tag is one that no op of the step has: the stage is a parameter group.
  const ReplicaId part(static_cast<std::int64_t>(shard.value_or(0)));
  MessageTag tag{step, {OpKind::Forward, part, StageId(group.value()), MicroBatchId(0)}};
  for (at::Tensor& tensor : state_of(group, shard)) {
    fault_point("restore");
    note_more_progress();
    if (self_.world_rank == from) {
      self_.transport.start_send(ranks.in_lane(to), tensor, tag)->wait();
    } else {
      const TensorSpec spec{tensor.sizes().vec(), tensor.scalar_type()};
      tensor.copy_(self_.transport.post_receive(ranks.in_lane(from), spec, tag)->wait());
    }
    tag.op.micro_batch = MicroBatchId(tag.op.micro_batch.value() + 1);  // Numbers the tensors of the group
  }
}

void TrainedModel::note_received(std::int64_t updates) {
  require_invariant(!lacking().empty(), "a rank with all weights receives the state of another rank");
  optimizer().set_steps(updates);
  update_copies();
  weights_->lacking.clear();
}

void TrainedModel::inject_bit_flip(std::string_view point, std::size_t tensor) const {
  if (!fault_point(point)) return;
  const at::Tensor value = state_of(groups_.begin()->first).at(tensor);
  // In the second highest byte of the first element: for a float32 or a bfloat16, a visible but finite change.
  static_cast<std::uint8_t*>(value.data_ptr())[value.element_size() - 2] ^= 1U;
}

}  // namespace chimera

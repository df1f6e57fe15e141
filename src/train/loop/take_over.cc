// How the ranks of a job go on after they have lost others: that part of the trainer.

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/fault_point.h"
#include "launch/local/rank.h"
#include "train/loop/trainer.h"

namespace chimera {
namespace {

constexpr std::size_t kNumbersOfState = 3;

void write(const RankState& state, double* numbers) {
  numbers[0] = state.has_weights ? 1 : 0;
  numbers[1] = static_cast<double>(state.done);
  numbers[2] = static_cast<double>(state.voted_for);
}

/// What each rank has, [rank]; all call it.
std::vector<RankState> gather(const RankState& own, RankId rank, std::int64_t ranks, Transport& transport) {
  std::vector<double> numbers(kNumbersOfState * static_cast<std::size_t>(ranks), 0);
  write(own, numbers.data() + kNumbersOfState * rank.index());
  transport.all_sum(numbers);
  std::vector<RankState> states;
  for (auto number = numbers.begin(); number != numbers.end(); number += kNumbersOfState) {
    states.push_back({.has_weights = number[0] > 0,
                      .done = static_cast<std::int64_t>(number[1]),
                      .voted_for = static_cast<std::int64_t>(number[2])});
  }
  return states;
}

}  // namespace

void Trainer::drop_step() {
  fault_point("leave");
  executor_->drop();
  if (job_.options.watches_weights()) require_unchanged();  // who replaces a rank that is lost is given these
  hashes_.clear();
  if (checkpointer_) checkpointer_->drop();
}

void Trainer::take_over() {
  const RankState own{has_weights_, done_, voted_for_};
  const std::vector<RankState> states = gather(own, rank_, job_.num_ranks(), transport_);
  const RankGroups groups = job_.rank_groups();
  const Settlement all = settle(states, groups);
  const bool is_behind = has_weights_ && done_ < all.done;
  agree_on_last_step(all.teller);
  if (is_behind && !last_metrics_.is_skipped) optimizer_step(all.done - 1, last_metrics_.gradient_norm);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const RankId rank : groups[group]) {
      const bool takes = !states[rank.index()].has_weights;
      if (takes) give_or_take(ParameterGroupId(static_cast<std::int64_t>(group)), all.givers[group], rank);
    }
  }
  if (!has_weights_) {
    optimizer_->set_steps(last_metrics_.updates);
    for (const auto& [id, stage] : stages_) stage->update_copies();
  }
  has_weights_ = true;
  done_ = all.done;
  step_ = std::max<std::int64_t>(done_ - 1, 0);
  is_closed_ = done_ == first_step_;
  fault_point("resume");
}

/// Every rank takes over what the one that tells knows of the step that is done now, and of those before.
void Trainer::agree_on_last_step(RankId teller) {
  StepMetrics& last = last_metrics_;
  double is_skipped = last.is_skipped ? 1 : 0;
  const std::array<double*, 10> measured = {&last.loss,
                                            &last.gradient_norm,
                                            &last.learning_rate,
                                            &last.step_seconds,
                                            &last.tokens_per_second,
                                            &last.peak_memory_bytes,
                                            &last.loss_watch.mean,
                                            &last.loss_watch.distance,
                                            &last.loss_watch.variance,
                                            &is_skipped};
  const std::array<std::int64_t*, 8> counted = {
      &last.step, &last.tokens,     &last.skipped, &last.updates, &last.loss_watch.losses,
      &skipped_,  &skipped_in_row_, &first_step_};
  const auto plans = checkpointer_ ? checkpointer_->plans() : std::array<double, Checkpointer::kNumPlans>{};
  std::vector<double> numbers;
  for (const double* value : measured) numbers.push_back(*value);
  for (const std::int64_t* value : counted) numbers.push_back(static_cast<double>(*value));
  numbers.insert(numbers.end(), plans.begin(), plans.end());
  if (rank_ != teller) std::ranges::fill(numbers, 0);
  transport_.all_sum(numbers);
  if (rank_ != teller) last = {};
  auto number = numbers.begin();
  for (double* value : measured) *value = *number++;
  for (std::int64_t* value : counted) *value = static_cast<std::int64_t>(*number++);
  last.is_skipped = is_skipped > 0;
  if (checkpointer_) checkpointer_->go_on({number, numbers.end()});
}

/// Weights and what the optimizer remembers of them, in an order that is the same on all ranks that hold the group.
/// Weights alone where optimizer state is shared out, and on a GPU, from where a hash would have to fetch it.
std::vector<at::Tensor> Trainer::state_of(ParameterGroupId group) const {
  std::vector<at::Tensor> tensors;
  std::vector<OptimizerTensor> remembered;
  if (!job_.options.shard_optimizer && device_.is_cpu()) {
    remembered = optimizer_ ? optimizer_->state() : stage_optimizers_.at(StageId(group.value()))->state();
  }
  for (const Parameter& parameter : trained_.at(group)->parameters()) {
    tensors.push_back(parameter.value.detach());
    for (const OptimizerTensor& state : remembered) {
      if (state.parameter == parameter.name) tensors.push_back(state.value);
    }
  }
  return tensors;
}

/// Tensor by tensor: one rank has both in memory, and all that give or take do so in one order.
void Trainer::give_or_take(ParameterGroupId group, RankId giver, RankId taker) {
  if (rank_ != giver && rank_ != taker) return;
  const at::NoGradGuard no_grad;
  MessageTag tag{last_metrics_.step, {OpKind::Forward, ReplicaId(0), StageId(group.value()), MicroBatchId(0)}};
  for (at::Tensor& tensor : state_of(group)) {
    fault_point("restore");
    note_progress({RankProgress::Phase::StartUp});
    if (rank_ == giver) {
      transport_.start_send(taker, tensor, tag)->wait();
    } else {
      const TensorSpec spec{tensor.sizes().vec(), tensor.scalar_type()};
      tensor.copy_(transport_.post_receive(giver, spec, tag)->wait());
    }
    tag.op.micro_batch = MicroBatchId(tag.op.micro_batch.value() + 1);
  }
}

}  // namespace chimera

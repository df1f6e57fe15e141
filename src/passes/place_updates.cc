#include "passes/place_updates.h"

#include <map>
#include <tuple>
#include <utility>

namespace chimera {
namespace {

using Copy = std::pair<ReplicaId, StageId>;  // of a stage: updated by itself

Copy copy_of(const Op& op) { return {op.replica, op.stage}; }

/// Makes one worker's list.
class UpdatePlacing {
 public:
  UpdatePlacing(const std::vector<Op>& ops, std::int64_t micro_batches, bool sums)
      : ops_(ops), micro_batches_(micro_batches), sums_(sums) {
    for (std::size_t i = 0; i < ops.size(); ++i) last_use_[{copy_of(ops[i]), ops[i].weight_version}] = i;
  }

  std::vector<PlacedInstruction> run() {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      State& state = states_[copy_of(op)];
      if (op.weight_version < state.newest && last_use(op, op.weight_version) == i) drop(i, op, op.weight_version);
      if (!gives_weight_gradient(op.kind)) continue;
      state.last_gradient = op;
      if (++state.gradients == micro_batches_) update(i, state);
    }
    for (auto& [copy, state] : states_) {
      if (state.gradients > 0) update(ops_.size() - 1, state);
    }
    return std::move(placed_);
  }

 private:
  struct State {
    std::int32_t newest = 0;
    std::int64_t gradients = 0;  // since the last update
    Op last_gradient;
  };

  /// Position of the last op that uses the version; 0, where no update has been, for one that no op uses.
  [[nodiscard]] std::size_t last_use(const Op& op, std::int32_t version) const {
    const auto found = last_use_.find({copy_of(op), version});
    return found == last_use_.end() ? 0 : found->second;
  }

  void drop(std::size_t after, Op op, std::int32_t version) {
    op.weight_version = version;
    placed_.push_back({after, {InstructionKind::DropWeights, op, {}}});
  }

  void update(std::size_t after, State& state) {
    Op op = state.last_gradient;
    if (last_use(op, state.newest) <= after) drop(after, op, state.newest);
    op.weight_version = ++state.newest;
    state.gradients = 0;
    if (sums_) {
      placed_.push_back({after, {InstructionKind::StartAllReduce, {}, {}, parameters_of(op.stage)}});
      placed_.push_back({after, {InstructionKind::WaitAllReduce, {}, {}, parameters_of(op.stage)}});
    }
    placed_.push_back({after, {InstructionKind::UpdateWeights, op, {}}});
  }

  const std::vector<Op>& ops_;
  std::int64_t micro_batches_;
  bool sums_;
  std::map<std::pair<Copy, std::int32_t>, std::size_t> last_use_;
  std::map<Copy, State> states_;
  std::vector<PlacedInstruction> placed_;
};

}  // namespace

std::vector<std::vector<PlacedInstruction>> place_updates(const Schedule& schedule, bool sums) {
  std::vector<std::vector<PlacedInstruction>> result(schedule.workers.size());
  if (!schedule.updates) return result;
  for (std::size_t w = 0; w < result.size(); ++w) {
    result[w] = UpdatePlacing(schedule.workers[w], schedule.updates->micro_batches, sums).run();
  }
  return result;
}

}  // namespace chimera

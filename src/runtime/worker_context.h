#pragma once

// Constants of a worker while it runs its programs: which worker it is, its stages and their parameters, the shape of
// the program, and the transport to the other workers. The parts of the executor (Messages, Activations, GradientSums,
// OpRunner, StepReduction) borrow one WorkerContext. In a tied model, stage 0 and the last stage share one matrix, the
// token embedding and output matrix. This tied matrix is a parameter group of its own, beside one group per stage.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/parameter_group.h"
#include "model/stage.h"
#include "schedule/program.h"
#include "schedule/rank_layout.h"
#include "schedule/reduction_tree.h"
#include "transport/transport.h"

namespace chimera {

/// Fixed order in which all workers add gradients (schedule/reduction_tree.h). Each replica of a stage must run the
/// backwards of consecutive micro-batches in order, and the slices of their tokens in reverse order.
struct CanonicalReduction {
  std::int64_t block_size = 1;   // micro-batches per block
  std::vector<SumOrder> orders;  // [parameter group]: which subtrees each of its ranks sums itself
};

/// Properties of a program besides its instructions.
struct ProgramShape {
  std::int64_t micro_batches = 0;  // of a step
  RankLayout ranks;                // the program's workers in every data-parallel group
  // [parameter group]: workers that hold it. The first of them, in data-parallel group 0, reports a gradient norm that
  // is not finite.
  WorkerGroups groups;
  GroupId group = {};  // the executor's data-parallel group
  // Names of all model parameters, ascending. The step computes one squared gradient norm per name, in this order.
  // Empty: one squared norm per parameter group.
  std::vector<std::string> parameters = {};
  // Fixed order of gradient additions (--reduction canonical), borrowed. Null: gradients are added in execution order.
  const CanonicalReduction* canonical = nullptr;
  // [micro-batch]: its position in the data of a step; needed only with `canonical`
  std::vector<std::int64_t> positions = {};
  // [stage]: spec of the tensor to the next stage, and of its gradient; the last stage has none. Empty: all are equal.
  std::vector<TensorSpec> boundaries = {};
  // First token of each slice, then the number of tokens of a sequence. Empty: micro-batches are not sliced.
  std::vector<std::int64_t> slice_bounds = {};
  bool tied = false;  // whether the model is tied
  // Whether gradients are summed by reduce-scatter. A rank then gets only the sums of the parameters that it owns
  // (owners_of() in model/parameter_group.h).
  bool scatters = false;
  // With tensor parallelism, the ranks that share a worker's layers have equal losses and equal copies of some
  // parameters, which must count once in sums over all ranks. False on all but one of these ranks: it then counts only
  // parameters of which it has a part (Parameter::whole_elements).
  bool counts_whole = true;
  // Adds numbers in place over the ranks that have the parts of a parameter. Empty: parameters are whole
  std::function<void(const at::Tensor&)> sum_over_parts = {};
  std::int64_t updates = 1;      // number of updates per stage and step
  bool counts_cpu_time = false;  // measures cpu_seconds of ops, at two system calls per op

  [[nodiscard]] std::int64_t stages() const { return static_cast<std::int64_t>(groups.size()) - (tied ? 1 : 0); }
  [[nodiscard]] RankId rank(WorkerId worker) const { return ranks.rank({group, worker}); }
};

/// The constants of one worker.
struct WorkerContext {
  /// `whole_message` has the type and sizes of the hidden states of a whole micro-batch: [samples, tokens, hidden
  /// size]. `own_tied` is the tied matrix if this worker holds it, else null. Borrows stages, tied matrix and
  /// transport.
  WorkerContext(WorkerId own_worker, std::map<StageId, Stage*> own_stages, Transport& connections,
                TensorSpec whole_message, ProgramShape program_shape, ParameterGroup* own_tied);
  WorkerContext& operator=(WorkerContext&&) = delete;

  WorkerId worker;
  std::map<StageId, Stage*> stages;
  Transport& transport;
  TensorSpec message;
  ProgramShape shape;
  ParameterGroup* tied;
  std::vector<TensorSpec> slices;                      // [slice]: spec of its message; empty: not sliced
  std::map<ParameterGroupId, ParameterGroup*> groups;  // Stages and tied matrix

  [[nodiscard]] Stage& stage(const Op& op) const { return *stages.at(op.stage); }
  [[nodiscard]] bool is_first(const Op& op) const { return op.stage == StageId(0); }
  [[nodiscard]] bool is_last(const Op& op) const { return op.stage.value() + 1 == shape.stages(); }
  [[nodiscard]] std::int64_t num_slices() const { return slices.empty() ? 1 : std::ssize(slices); }
  /// Returns the step of a micro-batch, from 0 within the program.
  [[nodiscard]] std::int64_t step_of(MicroBatchId id) const { return id.value() / shape.micro_batches; }
  /// Returns the spec of the tensor that an op sends: a forward's output, or a backward's input gradient.
  [[nodiscard]] const TensorSpec& message_of(const Op& maker) const;
  [[nodiscard]] at::Device device() const { return groups.begin()->second->gradients().device(); }
};

/// Returns the parameters of a group that its `member`-th rank, of `members` ranks, owns (owners_of()). Only the owner
/// adds a parameter's gradient to the global norm, updates it if the optimizer is sharded, and writes it to
/// checkpoints.
[[nodiscard]] std::vector<Parameter> owned_parameters(const ParameterGroup& group, std::size_t members,
                                                      std::size_t member);

/// Identifies an op of a worker in tables: its kind, stage, micro-batch and slice.
using OpKey = std::uint64_t;
[[nodiscard]] OpKey key_of(const Op& op);

/// Returns the forward with the stage, micro-batch and slice of `op`.
[[nodiscard]] Op forward_of(Op op);

/// Names an op in a message about a broken invariant: "2F5 (stage 2, micro-batch 5)".
[[nodiscard]] std::string name_of(const Op& op);

}  // namespace chimera

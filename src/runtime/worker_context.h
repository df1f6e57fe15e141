#pragma once

// What stays the same while a worker runs its programs: which worker it is, its stages and their parameters, the shape
// of the program, and the transport to the other workers. The parts of the executor (Messages, Activations,
// GradientSums, OpRunner, StepReduction) borrow it.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/stage.h"
#include "runtime/canonical_sums.h"
#include "schedule/program.h"
#include "transport/transport.h"

namespace chimera {

struct WorkerContext {
  /// `whole_message` has the sizes and type of whole hidden states, [b, L, H]. `own_tied` is the tied matrix if this
  /// worker owns it, else null. Borrows stages, tied matrix and transport.
  WorkerContext(WorkerId own_worker, std::map<StageId, Stage*> own_stages, Transport& connections,
                TensorSpec whole_message, ProgramShape program_shape, ParameterGroup* own_tied);
  WorkerContext(const WorkerContext&) = delete;
  WorkerContext& operator=(const WorkerContext&) = delete;

  WorkerId worker;
  std::map<StageId, Stage*> stages;
  Transport& transport;
  TensorSpec message;
  ProgramShape shape;
  ParameterGroup* tied;
  std::vector<TensorSpec> slices;                      // [slice]: of `message`; empty: micro-batches run whole
  std::map<ParameterGroupId, ParameterGroup*> groups;  // Stages and tied matrix

  [[nodiscard]] Stage& stage(const Op& op) const { return *stages.at(op.stage); }
  [[nodiscard]] bool is_first(const Op& op) const { return op.stage == StageId(0); }
  [[nodiscard]] bool is_last(const Op& op) const { return op.stage.value() + 1 == shape.stages(); }
  [[nodiscard]] std::int64_t num_slices() const { return slices.empty() ? 1 : std::ssize(slices); }
  /// Returns the step of a micro-batch within the program.
  [[nodiscard]] std::int64_t step_of(MicroBatchId id) const { return id.value() / shape.micro_batches; }
  /// Returns the spec of the tensor that an op sends: a forward's output, or a backward's input gradient.
  [[nodiscard]] const TensorSpec& message_of(const Op& maker) const;
  [[nodiscard]] at::Device device() const { return groups.begin()->second->gradients().device(); }
};

/// Identifies an op of a worker in tables: its kind, stage, micro-batch and slice.
using OpKey = std::uint64_t;
[[nodiscard]] OpKey key_of(const Op& op);

[[nodiscard]] Op forward_of(Op op);

/// Names an op in a message about a broken invariant: "2F5 (stage 2, micro-batch 5)".
[[nodiscard]] std::string name_of(const Op& op);

}  // namespace chimera

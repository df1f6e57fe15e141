// What is left over at the end of a program: gradients, weights, ops and waits. What runs for every instruction is in
// the header.

#include "check/run_state.h"

namespace chimera {

// At the end of a program every gradient is in an update, and the newest weights of each stage exist: the next step
// starts with them.
void LiveVersions::report_unfinished(Findings& findings) const {
  for (std::size_t copy = 0; copy < gradients_.size(); ++copy) {
    Op newest{OpKind::Backward,
              ReplicaId(static_cast<std::int64_t>(copy / stages_)),
              StageId(static_cast<std::int64_t>(copy % stages_)),
              {}};
    newest.weight_version = this->newest(newest);
    if (gradients(newest) > 0) {
      findings.add_text(ViolationKind::BadDataFlow, "{} gradients of stage {} of replica {} enter no update",
                        gradients(newest), newest.stage.value(), newest.replica.value());
    }
    if (!holds(newest)) {
      findings.add_text(ViolationKind::MissingVersion, "the newest weights of stage {} of replica {} are dropped",
                        newest.stage.value(), newest.replica.value());
    }
  }
}

void ProgramTensors::report_unfinished(bool trains, Findings& findings) const {
  // The slot behind the last stage is the number of slots.
  for (std::size_t i = 0; i < slot(stages_, 0, 0); ++i) report_missing(i, trains, findings);
  for (const auto& table : tables_) {
    for (std::size_t i = 0; i < table.size(); ++i) report_transfer(table[i], i, findings);
  }
}

// Forward alone (validation), or forward with one complete backward (training); anything else is reported once for each
// slice of a micro-batch.
void ProgramTensors::report_missing(std::size_t slot, bool trains, Findings& findings) const {
  const auto has_run = [&](OpKind kind) {
    const auto& table = tables_[static_cast<std::size_t>(kind)];
    return !table.empty() && table[slot].made_on != kNoWorker;
  };
  const bool whole = has_run(OpKind::Backward);
  const bool input = has_run(OpKind::BackwardInput);
  const bool weight = has_run(OpKind::BackwardWeight);
  const bool backward = whole ? !input && !weight : input && weight;
  // Half of a split backward is no backward, but it is an error in validation, too.
  if (has_run(OpKind::Forward) && backward == trains && (backward || !(whole || input || weight))) return;
  findings.add(ViolationKind::MissingOp, {}, [&] {
    const auto at = static_cast<std::int64_t>(slot);
    const std::int64_t row = at / slices_;
    return fmt::format("micro-batch {} at stage {}: the program runs{}{}{}{}, not F{}",
                       name_of(row % micro_batches_, at % slices_), row / micro_batches_,
                       has_run(OpKind::Forward) ? " F" : "", whole ? " B" : "", input ? " I" : "", weight ? " W" : "",
                       trains ? " and B (or F, I and W)" : " alone");
  });
}

void ProgramTensors::report_transfer(const Tensor& tensor, std::size_t slot, Findings& findings) const {
  const auto report_wait = [&](const char* what, std::int32_t worker) {
    findings.add(ViolationKind::BadDataFlow, {}, [&] {
      const auto at = static_cast<std::int64_t>(slot);
      const std::int64_t row = at / slices_;
      return fmt::format("worker {} never waits for the {} of a tensor of micro-batch {} at stage {}", worker, what,
                         name_of(row % micro_batches_, at % slices_), row / micro_batches_);
    });
  };
  if (tensor.sent_to != kNoWorker && !tensor.send_waited) report_wait("send", tensor.made_on);
  if (tensor.receiver != kNoWorker && !tensor.receive_waited) report_wait("receive", tensor.receiver);
}

}  // namespace chimera

#include "check/program_tensors.h"

#include <fmt/format.h>

namespace chimera {

void ProgramTensors::report_unfinished(bool trains, Findings& findings) const {
  for (std::int64_t s = 0; s < stages_; ++s) {
    for (std::int64_t m = 0; m < micro_batches_; ++m) report_missing(s, MicroBatchId(m), trains, findings);
  }
  for (const auto& table : tables_) {
    for (std::size_t i = 0; i < table.size(); ++i) report_transfer(table[i], i, findings);
  }
}

bool ProgramTensors::has_run(OpKind kind, std::int64_t stage, MicroBatchId micro_batch) const {
  const auto& table = tables_[static_cast<std::size_t>(kind)];
  return !table.empty() && table[slot(stage, micro_batch)].made_on != kNobody;
}

void ProgramTensors::report_missing(std::int64_t stage, MicroBatchId id, bool trains, Findings& findings) const {
  const bool whole = has_run(OpKind::Backward, stage, id);
  const bool input = has_run(OpKind::BackwardInput, stage, id);
  const bool weight = has_run(OpKind::BackwardWeight, stage, id);
  const bool backward = whole ? !input && !weight : input && weight;
  if (has_run(OpKind::Forward, stage, id) && backward == trains && (backward || !(whole || input || weight))) return;
  findings.add(ViolationKind::MissingOp, {}, [&] {
    return fmt::format("micro-batch {} at stage {}: the program runs{}{}{}{}, not F{}", id.value(), stage,
                       has_run(OpKind::Forward, stage, id) ? " F" : "", whole ? " B" : "", input ? " I" : "",
                       weight ? " W" : "", trains ? " and B (or F, I and W)" : " alone");
  });
}

void ProgramTensors::report_transfer(const Tensor& tensor, std::size_t slot, Findings& findings) const {
  const auto report_wait = [&](const char* what, std::int32_t worker) {
    findings.add(ViolationKind::BadDataFlow, {}, [&] {
      return fmt::format("worker {} never waits for the {} of a tensor of micro-batch {} at stage {}", worker, what,
                         slot % static_cast<std::size_t>(micro_batches_),
                         slot / static_cast<std::size_t>(micro_batches_));
    });
  };
  if (tensor.sent_to != kNobody && !tensor.send_waited) report_wait("send", tensor.made_on);
  if (tensor.receiver != kNobody && !tensor.receive_waited) report_wait("receive", tensor.receiver);
}

}  // namespace chimera

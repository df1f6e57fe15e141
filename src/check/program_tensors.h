#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "check/findings.h"
#include "schedule/program.h"

namespace chimera {

inline constexpr std::int32_t kNobody = -1;

/// What one op makes, and its one transfer.
struct Tensor {
  std::int32_t made_on = kNobody;  // worker
  std::int32_t sent_to = kNobody;
  std::int32_t receiver = kNobody;
  std::int32_t received_from = kNobody;
  bool is_transferred = false;
  bool send_waited = false;
  bool receive_waited = false;
  [[nodiscard]] bool is_on(std::int32_t worker) const {
    return made_on == worker || (receive_waited && receiver == worker);
  }
};

/// What the ops of a program have made so far. Ops are in the program's range.
class ProgramTensors {
 public:
  explicit ProgramTensors(const Program& program) : stages_(program.stages), micro_batches_(program.micro_batches) {}

  Tensor& at(const Op& op) {
    auto& table = tables_[static_cast<std::size_t>(op.kind)];
    if (table.empty()) table.resize(static_cast<std::size_t>(stages_ * micro_batches_));
    return table[slot(op.stage.value(), op.micro_batch)];
  }
  [[nodiscard]] bool is_on(std::size_t worker, OpKind kind, std::int64_t stage, MicroBatchId micro_batch) const {
    const auto& table = tables_[static_cast<std::size_t>(kind)];
    return !table.empty() && table[slot(stage, micro_batch)].is_on(static_cast<std::int32_t>(worker));
  }
  /// A number of its own for each tensor.
  [[nodiscard]] std::uint32_t number(const Op& op) const {
    const auto kinds_before = static_cast<std::size_t>(op.kind) * static_cast<std::size_t>(stages_);
    return static_cast<std::uint32_t>(kinds_before * static_cast<std::size_t>(micro_batches_) +
                                      slot(op.stage.value(), op.micro_batch));
  }
  /// Adds the ops that have not run, or should not have, and the transfers that were not waited for.
  void report_unfinished(bool trains, Findings& findings) const;

 private:
  [[nodiscard]] std::size_t slot(std::int64_t stage, MicroBatchId micro_batch) const {
    return static_cast<std::size_t>(stage * micro_batches_) + micro_batch.index();
  }
  [[nodiscard]] bool has_run(OpKind kind, std::int64_t stage, MicroBatchId micro_batch) const;
  void report_missing(std::int64_t stage, MicroBatchId micro_batch, bool trains, Findings& findings) const;
  void report_transfer(const Tensor& tensor, std::size_t slot, Findings& findings) const;

  std::int64_t stages_;
  std::int64_t micro_batches_;
  std::array<std::vector<Tensor>, kOpKinds> tables_;  // [kind][stage * N + micro-batch]; empty where not used
};

}  // namespace chimera

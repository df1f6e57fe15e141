#pragma once
// How long the ops of each stage took: what `simulate` is fed to predict the step.

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "schedule/op.h"

namespace chimera {

/// Sums of wall-clock seconds and counts for each (stage, kind of op).
class OpTimes {
 public:
  explicit OpTimes(std::int64_t stages) : entries_(static_cast<std::size_t>(stages)) {}

  void add(const Op& op, std::chrono::duration<double> seconds) {
    Entry& entry = entries_[op.stage.index()][static_cast<std::size_t>(op.kind)];
    entry.seconds += seconds.count();
    entry.count += 1;
  }
  /// Mean seconds; 0 where the op never ran.
  [[nodiscard]] double mean(StageId stage, OpKind kind) const {
    const Entry& entry = entries_[stage.index()][static_cast<std::size_t>(kind)];
    return entry.count > 0 ? entry.seconds / entry.count : 0;
  }
  [[nodiscard]] std::int64_t num_stages() const { return static_cast<std::int64_t>(entries_.size()); }

  /// As plain numbers, so that sums over workers can be formed; from_numbers reads them back.
  [[nodiscard]] std::vector<double> to_numbers() const {
    std::vector<double> numbers;
    for (const auto& stage : entries_) {
      for (const Entry& entry : stage) numbers.insert(numbers.end(), {entry.seconds, entry.count});
    }
    return numbers;
  }
  [[nodiscard]] static OpTimes from_numbers(const std::vector<double>& numbers) {
    OpTimes times(static_cast<std::int64_t>(numbers.size()) / (2 * kOpKinds));
    std::size_t next = 0;
    for (auto& stage : times.entries_) {
      for (Entry& entry : stage) {
        entry = {numbers[next], numbers[next + 1]};
        next += 2;
      }
    }
    return times;
  }

 private:
  struct Entry {
    double seconds = 0;
    double count = 0;
  };
  std::vector<std::array<Entry, kOpKinds>> entries_;  // [stage][kind]
};

}  // namespace chimera

#pragma once

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "check/findings.h"
#include "schedule/program.h"

namespace chimera {

/// The weight versions that the workers of a program hold as it runs, and the gradients that wait for an update: of
/// each stage of each replica, which the worker that holds it updates by itself. Ops are in the placement's range.
class HeldVersions {
 public:
  explicit HeldVersions(const Program& program)
      : stages_(static_cast<std::size_t>(program.stages)), gradients_(program.placement.num_replicas() * stages_, 0) {}

  /// Whether the version that the op names is held.
  [[nodiscard]] bool holds(const Op& op) const {
    const auto copy = copies_.find(index(op));
    return copy == copies_.end() ? op.weight_version == 0 : copy->second.held.contains(op.weight_version);
  }
  /// Number of updates of the op's stage so far.
  [[nodiscard]] std::int32_t newest(const Op& op) const {
    const auto copy = copies_.find(index(op));
    return copy == copies_.end() ? 0 : copy->second.newest;
  }
  /// Weight gradients since the last update.
  [[nodiscard]] std::int32_t gradients(const Op& op) const { return gradients_[index(op)]; }

  void add_gradient(const Op& op) { ++gradients_[index(op)]; }
  void drop(const Op& op) { copies_[index(op)].held.erase(op.weight_version); }
  void update(const Op& op) {
    Copy& copy = copies_[index(op)];
    copy.held.insert(++copy.newest);
    gradients_[index(op)] = 0;
  }
  /// Adds gradients that entered no update, and newest versions that are dropped.
  void report_unfinished(Findings& findings) const;
  /// Whether any stage has been updated, or any version dropped.
  [[nodiscard]] bool any_updates() const { return !copies_.empty(); }

 private:
  struct Copy {
    std::int32_t newest = 0;
    std::set<std::int32_t> held = {0};
  };

  [[nodiscard]] std::size_t index(const Op& op) const { return op.replica.index() * stages_ + op.stage.index(); }

  std::size_t stages_;
  std::vector<std::int32_t> gradients_;           // [replica][stage]
  std::unordered_map<std::size_t, Copy> copies_;  // by the same index; those without entry hold version 0 alone
};

}  // namespace chimera

#include "check/held_versions.h"

#include <fmt/format.h>

namespace chimera {

void HeldVersions::report_unfinished(Findings& findings) const {
  for (std::size_t copy = 0; copy < gradients_.size(); ++copy) {
    Op newest{OpKind::Backward,
              ReplicaId(static_cast<std::int64_t>(copy / stages_)),
              StageId(static_cast<std::int64_t>(copy % stages_)),
              {}};
    newest.weight_version = this->newest(newest);
    if (gradients(newest) > 0) {
      findings.add(ViolationKind::BadDataFlow, {}, [&] {
        return fmt::format("{} gradients of stage {} of replica {} enter no update", gradients(newest),
                           newest.stage.value(), newest.replica.value());
      });
    }
    if (!holds(newest)) {
      findings.add(ViolationKind::MissingVersion, {}, [&] {
        return fmt::format("the newest weights of stage {} of replica {} are dropped", newest.stage.value(),
                           newest.replica.value());
      });
    }
  }
}

}  // namespace chimera

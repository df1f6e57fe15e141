#include "check/check_placement.h"

#include <fmt/format.h>

#include <limits>

namespace chimera {
namespace {

constexpr std::size_t kMostReplicas = std::numeric_limits<std::int16_t>::max();  // as ReplicaId counts

void check_row(std::size_t r, const std::vector<WorkerId>& row, std::int64_t stages, std::size_t num_workers,
               Findings& findings) {
  const auto workers = static_cast<std::int64_t>(num_workers);
  if (static_cast<std::int64_t>(row.size()) != stages) {
    findings.add(ViolationKind::BadPlacement, {}, [&] {
      return fmt::format("replica {} places {} stages; the schedule has {}", r, row.size(), stages);
    });
  }
  for (std::size_t s = 0; s < row.size(); ++s) {
    if (row[s].value() >= 0 && row[s].value() < workers) continue;
    findings.add(ViolationKind::BadPlacement, {}, [&] {
      return fmt::format("replica {} places stage {} on worker {}; there are workers 0 to {}", r, s, row[s].value(),
                         workers - 1);
    });
  }
}

}  // namespace

bool check_placement(const Placement& placement, std::int64_t stages, std::int64_t micro_batches,
                     std::size_t num_workers, Findings& findings) {
  const bool has_counts = stages >= 1 && micro_batches >= 1 && micro_batches <= kMostOps / stages;
  if (!has_counts) {
    findings.add(ViolationKind::OutOfRange, {}, [&] {
      return fmt::format("{} stages and {} micro-batches; both are positive, their product at most {}", stages,
                         micro_batches, kMostOps);
    });
  }
  const auto report = [&](auto message) { findings.add(ViolationKind::BadPlacement, {}, message); };
  const std::size_t replicas = placement.num_replicas();
  if (replicas == 0) report([] { return std::string("the schedule has no replica"); });
  if (replicas > kMostReplicas) {
    report([&] { return fmt::format("{} replicas; ops can name {} at most", replicas, kMostReplicas); });
  }
  for (std::size_t r = 0; r < replicas; ++r) check_row(r, placement.worker_of[r], stages, num_workers, findings);
  return has_counts;
}

}  // namespace chimera

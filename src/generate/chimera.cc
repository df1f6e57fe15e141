#include "generate/chimera.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "generate/shape.h"

namespace chimera {
namespace {

/// A worker's ops of one unit with their slots; units are laid into the worker's list in slot order.
struct SlottedOp {
  std::int64_t slot;
  Op op;
};

void require_fitting(const PipelineShape& shape) {
  require_sane("chimera", shape);
  if (shape.stages % 2 != 0) {
    throw ConfigError(fmt::format(
        "chimera: --stages must be even, not {} (with odd D both directions want the same slots)", shape.stages));
  }
  if (shape.pipelines % 2 != 0 || (shape.stages / 2) % (shape.pipelines / 2) != 0) {
    std::string legal;
    for (std::int64_t f = 1; f <= std::min<std::int64_t>(shape.stages / 2, 64); ++f) {
      if ((shape.stages / 2) % f == 0) legal += fmt::format("{}{}", legal.empty() ? "" : ", ", 2 * f);
    }
    throw ConfigError(fmt::format("chimera: --pipelines must be twice a divisor of D/2 = {}: {}; not {}",
                                  shape.stages / 2, legal, shape.pipelines));
  }
}

Placement chimera_placement(std::int64_t depth, std::int64_t f) {
  Placement placement;
  for (const bool down : {true, false}) {
    for (std::int64_t i = 0; i < f; ++i) {
      auto& row = placement.worker_of.emplace_back();
      for (std::int64_t s = 0; s < depth; ++s) {
        row.emplace_back((i * (depth / f) + (down ? s : depth - 1 - s)) % depth);
      }
    }
  }
  return placement;
}

/// How many of a unit's `count` micro-batches each of the 2f pipelines gets: as even as can be, and where some get one
/// more, down 0, up 0, down 1, up 1 and so on.
std::vector<std::int64_t> deal(std::int64_t count, std::int64_t f) {
  std::vector<std::int64_t> shares(static_cast<std::size_t>(2 * f), count / (2 * f));
  for (std::int64_t extra = 0; extra < count % (2 * f); ++extra) {
    const std::int64_t pipeline = (extra % 2) * f + extra / 2;
    ++shares[static_cast<std::size_t>(pipeline)];
  }
  return shares;
}

}  // namespace

Schedule chimera(const PipelineShape& shape) {
  require_fitting(shape);
  const std::int64_t depth = shape.stages;
  const std::int64_t f = shape.pipelines / 2;
  Schedule schedule{"chimera", depth, shape.micro_batches, chimera_placement(depth, f), {}};

  std::vector<std::vector<SlottedOp>> slotted(static_cast<std::size_t>(depth));
  for (std::int64_t first = 0; first < shape.micro_batches; first += depth) {
    const std::int64_t unit_slot = 2 * first;  // a unit of D micro-batches every 2D slots
    const auto shares = deal(std::min(depth, shape.micro_batches - first), f);
    std::int64_t id = first;
    for (std::size_t r = 0; r < shares.size(); ++r) {
      for (std::int64_t m = 0; m < shares[r]; ++m, ++id) {
        for (std::int64_t s = 0; s < depth; ++s) {
          const Op forward{OpKind::Forward, ReplicaId(static_cast<std::int64_t>(r)), StageId(s), MicroBatchId(id)};
          Op backward = forward;
          backward.kind = OpKind::Backward;
          auto& ops = slotted[schedule.placement.worker(forward.replica, forward.stage).index()];
          ops.push_back({unit_slot + s + 2 * m, forward});
          ops.push_back({unit_slot + 2 * depth - 1 - s + 2 * m, backward});
        }
      }
    }
  }

  schedule.workers.resize(slotted.size());
  for (std::size_t w = 0; w < slotted.size(); ++w) {
    std::sort(slotted[w].begin(), slotted[w].end(), [](const auto& a, const auto& b) { return a.slot < b.slot; });
    schedule.workers[w].reserve(slotted[w].size());
    for (const SlottedOp& entry : slotted[w]) schedule.workers[w].push_back(entry.op);
  }
  return schedule;
}

}  // namespace chimera

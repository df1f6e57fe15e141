#include "generate/chimera_paper.h"

#include <algorithm>

namespace chimera {
namespace {

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Counts for a shape; `each` is the number of micro-batches that a pipeline has of a unit of D.
class ChimeraCounts {
 public:
  explicit ChimeraCounts(const PipelineShape& shape)
      : depth_(shape.stages), pipelines_(shape.pipelines), each_(shape.stages / shape.pipelines) {}

  [[nodiscard]] CriticalOps direct(std::int64_t count) const {
    if (count <= depth_) return {depth_, depth_ + 2 * share(count) - 2};
    const std::int64_t units = count / depth_;
    return plus({depth_ + (units - 1) * (depth_ - 2 * each_ + 2), units * (depth_ + 2 * each_ - 2)},
                joined(count % depth_));
  }

  [[nodiscard]] CriticalOps doubling(std::int64_t count, double ratio) const {
    const std::int64_t units = count / (2 * depth_);
    const std::int64_t left = count % (2 * depth_);
    if (units == 0 && left <= depth_) return direct(left);
    const std::int64_t spare = ratio > 2 ? 2 * each_ - 2 : 0;  // bubbles of a backward beyond two forwards, each unit
    const std::int64_t last = share(left) * pipelines_;        // a last unit beyond D, in whole rounds
    const std::int64_t whole = units == 0 ? last : 2 * depth_;
    CriticalOps counts{whole + each_ - 1, whole + each_ - 1};
    if (units == 0) return counts;
    counts = plus(counts, {(units - 1) * (whole - 2 * spare), (units - 1) * (whole + spare)});
    return plus(counts, left <= depth_ ? joined(left) : CriticalOps{last - 2 * spare, last + spare});
  }

 private:
  [[nodiscard]] std::int64_t share(std::int64_t count) const { return ceil_of(count, pipelines_); }
  /// A last unit of direct concatenation behind others.
  [[nodiscard]] CriticalOps joined(std::int64_t count) const {
    if (count == 0) return {};
    return {depth_ - 2 * each_ + 2, depth_ + 2 * share(count) - 2};
  }
  static CriticalOps plus(CriticalOps a, CriticalOps b) { return {a.forwards + b.forwards, a.backwards + b.backwards}; }

  std::int64_t depth_;
  std::int64_t pipelines_;
  std::int64_t each_;
};

}  // namespace

CriticalOps chimera_critical_ops(const PipelineShape& shape, double ratio) {
  const ChimeraCounts counts(shape);
  switch (shape.scale) {
    case ScaleMethod::Direct: return counts.direct(shape.micro_batches);
    case ScaleMethod::Doubling: return counts.doubling(shape.micro_batches, ratio);
    case ScaleMethod::Halving: return counts.doubling(2 * shape.micro_batches, ratio);
  }
  return {};
}

FreeRegions chimera_free_regions(const PipelineShape& shape, std::int64_t worker) {
  if (shape.pipelines != 2) return {};
  const std::int64_t inner = std::min(worker, shape.stages - 1 - worker);
  return {.backwards = shape.stages / 2 - 1 - inner, .first_stage = shape.stages / 2, .forwards_and_backwards = inner};
}

}  // namespace chimera

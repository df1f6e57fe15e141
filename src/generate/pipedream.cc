#include "generate/pipedream.h"

#include <fmt/format.h>
#include <algorithm>

#include "generate/one_f_one_b.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kPipedreamTwoBw = "pipedream-2bw";

std::optional<std::string> pipedream_two_bw_refusal(const PipelineShape& shape) {
  if (auto refused = shape_error(shape)) return refused;
  if (shape.micro_batches >= shape.stages) return std::nullopt;
  return fmt::format("--micro-batches must be at least --stages = {}, not {} (an update takes D or more)", shape.stages,
                     shape.micro_batches);
}

/// Without a flush no worker waits.
CriticalOps pipedream_two_bw_critical_ops(const PipelineShape& shape, double) {
  return {shape.micro_batches, shape.micro_batches};
}

}  // namespace

Schedule pipedream_two_bw(const PipelineShape& shape) {
  require_shape(kPipedreamTwoBw, pipedream_two_bw_refusal(shape));
  Schedule schedule = one_f_one_b({.stages = shape.stages, .micro_batches = shape.micro_batches});
  schedule.name = kPipedreamTwoBw;
  schedule.updates = AsynchronousUpdates{.micro_batches = shape.micro_batches, .versions = 2, .delay = 1};
  return schedule;
}

Generator pipedream_two_bw_entry() {
  return {.name = kPipedreamTwoBw,
          .generate = pipedream_two_bw,
          .refusal = pipedream_two_bw_refusal,
          .rule =
              "1F1B without a flush, with one update per N ≥ D micro-batches. Step t uses version max(0, t-1) on "
              "every stage, so two versions suffice.",
          .constraints = "N >= D",
          .closed_form = "(N+D-1)(F+B), no flush",
          .activations = "D-s",
          .source = "Narayanan et al., ICML'21",
          .synchronous = false,
          .paper = PaperModel{pipedream_two_bw_critical_ops}};
}

namespace {

constexpr const char* kPipedream = "pipedream";

std::optional<std::string> pipedream_refusal(const PipelineShape& shape) { return shape_error(shape); }

CriticalOps pipedream_critical_ops(const PipelineShape& shape, double) {
  return {shape.micro_batches, shape.micro_batches};
}

}  // namespace

Schedule pipedream(const PipelineShape& shape) {
  require_shape(kPipedream, pipedream_refusal(shape));
  Schedule schedule = one_f_one_b({.stages = shape.stages, .micro_batches = shape.micro_batches});
  schedule.name = kPipedream;
  schedule.updates = AsynchronousUpdates{.micro_batches = 1, .versions = shape.stages};
  for (auto& ops : schedule.workers) {
    for (Op& op : ops) {
      const std::int64_t behind = shape.stages - 1 - op.stage.value();
      op.weight_version = static_cast<std::int32_t>(std::max<std::int64_t>(0, op.micro_batch.value() - behind));
    }
  }
  return schedule;
}

Generator pipedream_entry() {
  return {.name = kPipedream,
          .generate = pipedream,
          .refusal = pipedream_refusal,
          .rule =
              "1F1B without a flush. A stage updates after each backward. A micro-batch's backward uses the same "
              "weights as its forward, so stage s keeps up to D-s versions. Micro-batch m uses version max(0, "
              "m-(D-1-s)) on stage s.",
          .constraints = "any D, N",
          .closed_form = "(N+D-1)(F+B), no flush",
          .activations = "min(D-s, N)",
          .source = "Narayanan et al., SOSP'19",
          .synchronous = false,
          .paper = PaperModel{pipedream_critical_ops}};
}

}  // namespace chimera

#include "generate/pipedream.h"

#include <fmt/format.h>
#include <algorithm>

#include "generate/one_f_one_b.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kPipedreamTwoBw = "pipedream-2bw";
constexpr const char* kPipedream = "pipedream";

std::optional<std::string> pipedream_two_bw_refusal(const PipelineShape& shape) {
  if (auto refused = shape_error(shape)) return refused;
  if (shape.micro_batches >= shape.stages) return std::nullopt;
  return fmt::format("--micro-batches must be at least --stages = {}, not {} (an update takes D or more)", shape.stages,
                     shape.micro_batches);
}

Schedule without_flush(const char* name, const PipelineShape& shape, const AsynchronousUpdates& updates) {
  Schedule schedule = one_f_one_b({.stages = shape.stages, .micro_batches = shape.micro_batches});
  schedule.name = name;
  schedule.updates = updates;
  return schedule;
}

/// Without a flush no worker waits.
CriticalOps ops_without_flush(const PipelineShape& shape, double) { return {shape.micro_batches, shape.micro_batches}; }

}  // namespace

Schedule pipedream_two_bw(const PipelineShape& shape) {
  require_shape(kPipedreamTwoBw, pipedream_two_bw_refusal(shape));
  return without_flush(kPipedreamTwoBw, shape, {.micro_batches = shape.micro_batches, .versions = 2, .delay = 1});
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
          .paper = PaperModel{.critical_ops = ops_without_flush}};
}

Schedule pipedream(const PipelineShape& shape) {
  require_shape(kPipedream, shape_error(shape));
  Schedule schedule = without_flush(kPipedream, shape, {.micro_batches = 1, .versions = shape.stages});
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
          .refusal = refuse_bad_counts<2>,
          .rule =
              "1F1B without a flush. A stage updates after each backward. A micro-batch's backward uses the same "
              "weights as its forward, so stage s keeps up to D-s versions. Micro-batch m uses version max(0, "
              "m-(D-1-s)) on stage s.",
          .constraints = "any D, N",
          .closed_form = "(N+D-1)(F+B), no flush",
          .activations = "min(D-s, N)",
          .source = "Narayanan et al., SOSP'19",
          .synchronous = false,
          .paper = PaperModel{.critical_ops = ops_without_flush}};
}

}  // namespace chimera

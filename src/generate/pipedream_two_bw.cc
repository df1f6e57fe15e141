#include "generate/pipedream_two_bw.h"

#include <fmt/format.h>

#include "generate/one_f_one_b.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kPipedreamTwoBw = "pipedream-2bw";

std::optional<std::string> pipedream_two_bw_refusal(const PipelineShape& shape) {
  if (auto refused = insane(shape)) return refused;
  if (shape.micro_batches >= shape.stages) return std::nullopt;
  return fmt::format("--micro-batches must be at least --stages = {}, not {} (an update takes D or more)", shape.stages,
                     shape.micro_batches);
}

/// No worker waits, as there is no flush.
CriticalOps pipedream_two_bw_critical_ops(const PipelineShape& shape, double) {
  return {shape.micro_batches, shape.micro_batches};
}

}  // namespace

Schedule pipedream_two_bw(const PipelineShape& shape) {
  require_shape(kPipedreamTwoBw, pipedream_two_bw_refusal(shape));
  Schedule schedule = one_f_one_b(shape);
  schedule.name = kPipedreamTwoBw;
  schedule.updates = AsynchronousUpdates{.micro_batches = shape.micro_batches, .versions = 2, .delay = 1};
  return schedule;
}

Generator pipedream_two_bw_entry() {
  return {.name = kPipedreamTwoBw,
          .generate = pipedream_two_bw,
          .refusal = pipedream_two_bw_refusal,
          .rule =
              "1F1B without a flush, one update for N ≥ D micro-batches: step t runs on version max(0, t-1) on every "
              "stage, so that two versions suffice.",
          .constraints = "N >= D",
          .closed_form = "(N+D-1)(F+B), no flush",
          .activations = "D-s",
          .source = "Narayanan et al., ICML'21",
          .synchronous = false,
          .paper = PaperModel{pipedream_two_bw_critical_ops}};
}

}  // namespace chimera

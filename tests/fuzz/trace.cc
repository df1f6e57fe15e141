// Fuzzes traces of torch.profiler and of chimera.

#include <cmath>

#include "fuzz/fuzzer.h"
#include "traces/diagnosis.h"

namespace chimera::testing {
namespace {

void exercise_trace(std::string_view bytes) {
  const auto diagnosis =
      read_or_refuse([&] { return diagnose_trace(join_ranks(read_trace_text(std::string(bytes), kSource)), 0); });
  if (!diagnosis) return;
  require(std::isfinite(diagnosis->simulated.makespan), "times are finite");
  require(!diagnosis->trace.steps.empty() && diagnosis->trace.step_seconds() >= 0, "a step has a time");
  require(!to_text(*diagnosis).empty(), "a text");
}

}  // namespace

const Fuzzer kTrace("trace", exercise_trace);

}  // namespace chimera::testing

#pragma once
// The page of --report: the run as its rank 0 saw it.

#include <string>
#include <vector>

#include "render/panel.h"
#include "train/loop/trainer.h"
#include "train/setup/job.h"

namespace chimera {

/// The page (telemetry/report_page.h) of a run that has ended: `metrics` are the lines of its steps, `timelines` one
/// step as it ran and as simulated.
[[nodiscard]] std::string report_text(const Job& job, const RunSummary& run, const std::string& metrics,
                                      std::vector<Panel> timelines);

}  // namespace chimera

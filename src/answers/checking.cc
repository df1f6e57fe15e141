#include <algorithm>

#include "answers/answers.h"
#include "answers/check_answer.h"
#include "answers/partial_run.h"
#include "answers/requests.h"
#include "render/page_data.h"

namespace chimera::playground {
namespace {

Limits requested_limits(const JsonValue& request) {
  Limits limits;
  if (request.has("max_in_flight")) limits.in_flight = request.number("max_in_flight");
  return limits;
}

/// Whether ops have places in a picture.
bool can_be_drawn(const CheckReport& report) {
  return std::none_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return finding.violation.kind == ViolationKind::BadPlacement || finding.violation.kind == ViolationKind::OutOfRange;
  });
}

Json counter_examples(const CheckReport& report) {
  Json texts = Json::array();
  for (const Finding& finding : report.findings) {
    if (finding.violation.severity == Severity::Violation) texts.push_back(finding.excerpt);
  }
  return texts;
}

/// The schedule's rows, as the editor has them.
Json rows_json(const Schedule& schedule) {
  Json rows = Json::array();
  for (const std::vector<Op>& ops : schedule.workers) {
    Json row = Json::array();
    for (const Op& op : ops) row.push_back(to_text(op));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Json checked(const JsonValue& request) {
  CheckReport report = examine(requested_schedule(request.field("schedule")), requested_limits(request),
                               truth_or(request, "strict_order", false));
  Json json = {{"report", Json::parse(check_json(report))},
               {"excerpts", counter_examples(report)},
               {"stages", report.schedule.stages},
               {"micro_batches", report.schedule.micro_batches},
               {"rows", rows_json(report.schedule)}};
  if (report.is_valid() || !can_be_drawn(report)) return json;
  const PartialRun run = run_as_far_as_possible(report.schedule, requested_costs(request, report.schedule));
  json["panel"] = page_panel(run.panel);
  json["visited"] = run.visited;
  return json;
}

}  // namespace chimera::playground

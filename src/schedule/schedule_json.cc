#include "schedule/schedule_json.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

namespace chimera {
namespace {

using Out = std::back_insert_iterator<std::string>;

void write_replicas(Out out, const Placement& placement) {
  fmt::format_to(out, "\"replicas\": [");
  for (std::size_t r = 0; r < placement.num_replicas(); ++r) {
    fmt::format_to(out, "{}{{\"id\": {}, \"workers\": [", r == 0 ? "" : ", ", r);
    const auto& row = placement.worker_of[r];
    for (std::size_t s = 0; s < row.size(); ++s) fmt::format_to(out, "{}{}", s == 0 ? "" : ", ", row[s].value());
    fmt::format_to(out, "]}}");
  }
  fmt::format_to(out, "]");
}

/// Everything but the ops, without the closing brace; `gap` stands between lines.
std::string open_header(const Schedule& schedule, const char* gap) {
  std::string text = fmt::format(
      "{{\"format\": \"chimera-schedule\", \"version\": 1, \"name\": {},{}\"stages\": {}, \"micro_batches\": {},{}",
      nlohmann::json(schedule.name).dump(), gap, schedule.stages, schedule.micro_batches, gap);
  const Out out(text);
  if (schedule.micro_batch_scale != 1) {
    fmt::format_to(out, "\"micro_batch_scale\": {},{}", schedule.micro_batch_scale, gap);
  }
  if (schedule.updates) {
    fmt::format_to(out, "\"synchronous\": false, \"micro_batches_per_update\": {}, \"weight_versions\": {},{}",
                   schedule.updates->micro_batches, schedule.updates->versions, gap);
    if (schedule.updates->delay) fmt::format_to(out, "\"update_delay\": {},{}", *schedule.updates->delay, gap);
  }
  write_replicas(out, schedule.placement);
  return text;
}

void write_op(Out out, const Op& op, bool versioned) {
  fmt::format_to(out, R"({{"op": "{}", "stage": {}, "replica": {}, "micro_batch": {})", letter(op.kind),
                 op.stage.value(), op.replica.value(), op.micro_batch.value());
  if (versioned) fmt::format_to(out, ", \"weight_version\": {}", op.weight_version);
  if (op.paired) fmt::format_to(out, ", \"paired\": true");
  fmt::format_to(out, "}}");
}

}  // namespace

std::string header_to_json(const Schedule& schedule) { return open_header(schedule, " ") + "}"; }

std::string to_json(const Schedule& schedule) {
  std::string text = open_header(schedule, "\n ") + ",\n \"workers\": [";
  const Out out(text);
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    text += w == 0 ? "\n  [" : ",\n  [";
    const auto& ops = schedule.workers[w];
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (i > 0) text += ", ";
      write_op(out, ops[i], schedule.updates.has_value());
    }
    text += "]";
  }
  return text + "]}\n";
}

}  // namespace chimera

// The schedule is written by hand and read over the tree of the JSON library. The functions read_...() follow the
// grammar of docs/schedule_format.md. They refuse what the grammar excludes. Ids are only clamped to their types:
// whether they exist is for check() to decide, which names the op.

#include "schedule/schedule_json.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <iterator>
#include <limits>

#include "core/choices.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/mapped.h"
#include "core/printable.h"
#include "core/reject.h"

namespace chimera {
namespace {

using Out = std::back_insert_iterator<std::string>;

void write_replicas(Out out, const Placement& placement) {
  fmt::format_to(out, "\"replicas\": [");
  for (std::size_t r = 0; r < placement.num_replicas(); ++r)
    fmt::format_to(out, "{}{{\"id\": {}, \"workers\": [{}]}}", r == 0 ? "" : ", ", r,
                   fmt::join(numbers_of_ids(placement.worker_of[r]), ", "));
  fmt::format_to(out, "]");
}

// Written by hand rather than as a JSON value, which would take many times the memory of the schedule.
/// Returns everything but the ops and the closing brace, with `gap` between lines.
std::string open_header(const Schedule& schedule, const char* gap) {
  std::string text = fmt::format(
      "{{\"format\": \"chimera-schedule\", \"version\": 1, \"name\": {},{}\"stages\": {}, \"micro_batches\": {},{}",
      json_text(nlohmann::json(schedule.name)), gap, schedule.stages, schedule.micro_batches, gap);
  const Out out(text);
  if (schedule.slices != 1) fmt::format_to(out, "\"slices\": {},{}", schedule.slices, gap);
  if (schedule.groups != 1) fmt::format_to(out, "\"groups\": {},{}", schedule.groups, gap);
  if (schedule.micro_batch_scale != 1)
    fmt::format_to(out, "\"micro_batch_scale\": {},{}", schedule.micro_batch_scale, gap);
  if (schedule.order) fmt::format_to(out, "\"order\": \"{}\",{}", to_text(*schedule.order), gap);
  if (schedule.late_forwards) fmt::format_to(out, "\"late_forwards\": true,{}", gap);
  if (schedule.updates) {
    fmt::format_to(out, "\"synchronous\": false, \"micro_batches_per_update\": {}, \"weight_versions\": {},{}",
                   schedule.updates->micro_batches, schedule.updates->versions, gap);
    if (schedule.updates->delay) fmt::format_to(out, "\"update_delay\": {},{}", *schedule.updates->delay, gap);
  }
  write_replicas(out, schedule.placement);
  return text;
}

void write_op(Out out, const Op& op, bool sliced, bool versioned) {
  fmt::format_to(out, R"({{"op": "{}", "stage": {}, "replica": {}, "micro_batch": {})", letter(op.kind),
                 op.stage.value(), op.replica.value(), op.micro_batch.value());
  if (sliced) fmt::format_to(out, ", \"slice\": {}", op.slice);
  if (versioned) fmt::format_to(out, ", \"weight_version\": {}", op.weight_version);
  if (op.paired) fmt::format_to(out, ", \"paired\": true");
  fmt::format_to(out, "}}");
}

constexpr std::size_t kLongestName = 1000;  // Bytes

void require(const JsonValue& value, bool has_type, const char* expected) {
  if (has_type) return;
  const nlohmann::json& json = value.json();
  value.fail(fmt::format("expected {}, found {}", expected, json.is_number() ? json_text(json) : json.type_name()));
}

/// An integer that is too large becomes the largest one.
std::int64_t integer_of(const JsonValue& value) {
  const nlohmann::json& json = value.json();
  require(value, json.is_number_integer(), "an integer");
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  // The library stores integers above 2^63 - 1 as unsigned ones, and would return them as negative numbers.
  const bool is_beyond = json.is_number_unsigned() && json.get<std::uint64_t>() > std::uint64_t{kMax};
  return is_beyond ? kMax : json.get<std::int64_t>();
}

std::int64_t count_of(const JsonValue& value, std::int64_t most = kMaxOps) {
  const std::int64_t count = integer_of(value);
  if (count < 1 || count > most) value.fail(fmt::format("expected 1 to {}, found {}", most, count));
  return count;
}

bool truth_or(const JsonValue& value, const char* field, bool otherwise) {
  return value.has(field) ? value.truth(field) : otherwise;
}

/// Clamps an id that the check will reject anyway.
template <class Rep>
Rep saturate(std::int64_t value) {
  return static_cast<Rep>(std::clamp<std::int64_t>(value, -1, std::numeric_limits<Rep>::max()));
}

std::vector<WorkerId> read_replica(const JsonValue& replica, std::size_t index) {
  replica.expect_object({"id", "workers"});
  if (const std::int64_t id = integer_of(replica.field("id")); id != static_cast<std::int64_t>(index))
    replica.field("id").fail(
        fmt::format("replicas are listed in order of their ids; expected {}, found {}", index, id));
  return mapped(replica.field("workers").list(),
                [](const JsonValue& worker) { return WorkerId(saturate<std::int32_t>(integer_of(worker))); });
}

Op read_op(const JsonValue& op, const Schedule& schedule) {
  static const std::vector<const char*> kNames = {"op",    "stage",          "replica", "micro_batch",
                                                  "slice", "weight_version", "paired"};
  op.expect_object(kNames);
  const std::string name = op.text("op");
  const auto kind = name.size() == 1 ? op_kind(name[0]) : std::nullopt;
  if (!kind) op.field("op").fail(fmt::format("unknown op '{}'; known: F, B, I, W", printable(name)));
  // Some schedules have the field: their ops must all have it. In other schedules it would have no effect, so it is
  // refused.
  const auto require_if = [&](bool needed, const char* field, const char* whose) {
    if (!needed && op.has(field)) op.field(field).fail(fmt::format("only ops of {}", whose));
    return needed ? integer_of(op.field(field)) : 0;
  };
  const std::int64_t slice =
      require_if(schedule.slices != 1, "slice", "a schedule with slices have it (\"slices\": 2 or more)");
  const std::int64_t version = require_if(schedule.updates.has_value(), "weight_version",
                                          "an asynchronous schedule have it (\"synchronous\": false)");
  return {.kind = *kind,
          .replica = ReplicaId(saturate<std::int16_t>(integer_of(op.field("replica")))),
          .stage = StageId(saturate<std::int32_t>(integer_of(op.field("stage")))),
          .micro_batch = MicroBatchId(saturate<std::int32_t>(integer_of(op.field("micro_batch")))),
          .weight_version = saturate<std::int32_t>(version),
          .paired = truth_or(op, "paired", false),
          .slice = saturate<std::int16_t>(slice)};
}

/// Requires the head of the schedule, because slices and updates decide which fields an op has.
std::vector<Op> read_worker(const JsonValue& worker, const Schedule& schedule) {
  const std::vector<JsonValue> entries = worker.list();
  std::vector<Op> ops;
  for (const JsonValue& entry : entries) {
    ops.push_back(read_op(entry, schedule));
    if (ops.size() < 2 || !ops.back().paired || !ops[ops.size() - 2].paired) continue;
    entry.field("paired").fail("the op before is paired with this one already");
  }
  if (!ops.empty() && ops.back().paired)
    entries.back().field("paired").fail("its worker has no next op to pair it with");
  return ops;
}

// The first line of a CSV file lacks the workers. The fields behind them may be missing.
// clang-format off
const std::vector<const char*> kFileNames = {
  "format", "version", "name", "stages", "micro_batches", "replicas",
  "workers", "slices", "groups", "micro_batch_scale", "order", "late_forwards",
  "synchronous", "micro_batches_per_update", "weight_versions", "update_delay"};
// clang-format on

// Fields that need each other are checked in both directions: a field without effect is more likely a mistake than a
// wish.
void read_rules(const JsonValue& file, Schedule& schedule) {
  if (file.has("micro_batch_scale")) {
    const JsonValue scale = file.field("micro_batch_scale");
    const double value = scale.json().is_number() ? scale.json().get<double>() : 0;
    require(scale, value > 0 && value <= 1, "a number above 0 and up to 1");
    schedule.micro_batch_scale = value;
  }
  if (file.has("order")) {
    const std::string order = file.text("order");
    schedule.order = find_named<OpOrder>(order);
    if (!schedule.order || schedule.order == OpOrder::Auto)
      file.field("order").fail(fmt::format("expected \"slots\" or \"deepest\", found \"{}\"", printable(order)));
  }
  schedule.late_forwards = truth_or(file, "late_forwards", false);
  if (truth_or(file, "synchronous", true)) {
    for (const char* const name : {"micro_batches_per_update", "weight_versions", "update_delay"})
      if (file.has(name)) file.field(name).fail("only an asynchronous schedule has it (\"synchronous\": false)");
    return;
  }
  schedule.updates = AsynchronousUpdates{.micro_batches = count_of(file.field("micro_batches_per_update")),
                                         .versions = count_of(file.field("weight_versions"))};
  if (file.has("update_delay")) schedule.updates->delay = count_of(file.field("update_delay"));
}

/// Reads all but the workers.
Schedule read_head(const JsonValue& file) {
  file.expect_object(kFileNames);
  if (const std::string format = file.text("format"); format != "chimera-schedule")
    file.field("format").fail(fmt::format("expected \"chimera-schedule\", found \"{}\"", printable(format)));
  if (const std::int64_t version = integer_of(file.field("version")); version != 1)
    file.field("version").fail(fmt::format("this program reads version 1, found {}", version));
  Schedule schedule{.name = file.text("name"),
                    .stages = count_of(file.field("stages")),
                    .micro_batches = count_of(file.field("micro_batches")),
                    .placement = {},
                    .workers = {}};
  if (schedule.name.size() > kLongestName) file.field("name").fail(fmt::format("longer than {} bytes", kLongestName));
  if (file.has("slices")) schedule.slices = count_of(file.field("slices"), kMaxSlices);
  if (file.has("groups")) schedule.groups = count_of(file.field("groups"));
  // Each factor is at most 10^8, so the product fits in 64 bits.
  if (schedule.stages * schedule.micro_batches > kMaxOps / 2 / schedule.slices)
    file.field("micro_batches")
        .fail(fmt::format("{} stages times {} micro-batches{} are more than {} ops", schedule.stages,
                          schedule.micro_batches,
                          schedule.slices == 1 ? "" : fmt::format(" of {} slices", schedule.slices), kMaxOps));
  read_rules(file, schedule);
  const std::vector<JsonValue> replicas = file.field("replicas").list();
  for (std::size_t r = 0; r < replicas.size(); ++r)
    schedule.placement.worker_of.push_back(read_replica(replicas[r], r));
  return schedule;
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
      write_op(out, ops[i], schedule.slices != 1, schedule.updates.has_value());
    }
    text += "]";
  }
  return text + "]}\n";
}

Schedule schedule_from_json(std::string_view text, const std::string& source) {
  // Counted first, because the tree takes about 500 bytes for an op.
  if (std::ranges::count(text, '{') > kMaxOpsOfFile)
    reject("{}: more than {} ops and replicas; a file has at most as many", source, kMaxOpsOfFile);
  const nlohmann::json json = parse_json(text, source);
  const JsonValue file(json, source);
  Schedule schedule = read_head(file);
  for (const JsonValue& worker : file.field("workers").list())
    schedule.workers.push_back(read_worker(worker, schedule));
  return schedule;
}

Schedule header_from_json(std::string_view text, const std::string& source) {
  const nlohmann::json json = parse_json(text, source);
  const JsonValue file(json, source);
  if (file.has("workers")) file.field("workers").fail("the rows of the file have the ops; leave this field out");
  return read_head(file);
}

}  // namespace chimera

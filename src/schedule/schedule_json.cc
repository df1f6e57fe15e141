// The schedule is written by hand and read over the tree of the JSON library. A `Value` is a place in this tree. The
// functions read_...() follow the grammar of docs/schedule_format.md. They refuse what the grammar excludes. Ids are
// only clamped to their types: whether they exist is for check() to decide, which names the op.

#include "schedule/schedule_json.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "core/choices.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/printable.h"
#include "core/reject.h"

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

// Written by hand rather than as a JSON value, which would take many times the memory of the schedule.
/// Returns everything but the ops and the closing brace, with `gap` between lines.
std::string open_header(const Schedule& schedule, const char* gap) {
  std::string text = fmt::format(
      "{{\"format\": \"chimera-schedule\", \"version\": 1, \"name\": {},{}\"stages\": {}, \"micro_batches\": {},{}",
      json_text(nlohmann::json(schedule.name)), gap, schedule.stages, schedule.micro_batches, gap);
  const Out out(text);
  if (schedule.slices != 1) fmt::format_to(out, "\"slices\": {},{}", schedule.slices, gap);
  if (schedule.groups != 1) fmt::format_to(out, "\"groups\": {},{}", schedule.groups, gap);
  if (schedule.micro_batch_scale != 1) {
    fmt::format_to(out, "\"micro_batch_scale\": {},{}", schedule.micro_batch_scale, gap);
  }
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

using Json = nlohmann::json;

constexpr std::size_t kLongestName = 1000;  // Bytes

// A file has millions of values, so the path of a value becomes text only for an error message. The values around it
// are on the stack of the reader.
/// A value of the file and its place.
struct Value {
  const Json& json;
  const std::string& source;
  const Value* parent = nullptr;
  const char* name = nullptr;  // null: element `index` of an array
  std::size_t index = 0;

  [[nodiscard]] std::string path() const {
    if (parent == nullptr) return "";
    const std::string above = parent->path();
    if (name == nullptr) return fmt::format("{}[{}]", above, index);
    return above.empty() ? name : above + "." + name;
  }
  [[noreturn]] void fail(const std::string& what) const { JsonValue(json, source, path()).fail(what); }
  void require(bool has_type, const char* expected) const {
    if (has_type) return;
    fail(fmt::format("expected {}, found {}", expected,
                     json.is_number() ? json_text(json) : std::string(json.type_name())));
  }

  /// Calls `read` with each element of an array.
  void for_each(const auto& read) const {
    require(json.is_array(), "an array");
    for (std::size_t i = 0; i < json.size(); ++i) read(Value{json[i], source, this, nullptr, i});
  }

  /// Fails unless it is an object with no other fields than `names`. The functions below require an object.
  void expect_fields(std::span<const char* const> names) const {
    require(json.is_object(), "an object");
    for (const auto& [field, value] : json.get_ref<const Json::object_t&>()) {
      if (std::find(names.begin(), names.end(), field) != names.end()) continue;
      // Throws, and names the nearest known field.
      JsonValue(json, source, path()).expect_object({names.begin(), names.end()});
    }
  }
  [[nodiscard]] bool has(const char* field) const { return json.contains(field); }
  /// Fails if the field is missing.
  [[nodiscard]] Value operator[](const char* field) const {
    const auto found = json.find(field);
    if (found == json.end()) fail(fmt::format("field '{}' is missing", field));
    return {*found, source, this, field};
  }

  /// An integer that is too large becomes the largest one.
  [[nodiscard]] std::int64_t integer() const {
    require(json.is_number_integer(), "an integer");
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    // The library stores integers above 2^63 - 1 as unsigned ones, and would return them as negative numbers.
    const bool is_beyond = json.is_number_unsigned() && json.get<std::uint64_t>() > std::uint64_t{kMax};
    return is_beyond ? kMax : json.get<std::int64_t>();
  }
  [[nodiscard]] std::int64_t count(std::int64_t most = kMaxOps) const {
    const std::int64_t value = integer();
    if (value < 1 || value > most) fail(fmt::format("expected 1 to {}, found {}", most, value));
    return value;
  }
  [[nodiscard]] const std::string& text(const char* expected = "a string") const {
    require(json.is_string(), expected);
    return json.get_ref<const std::string&>();
  }
  [[nodiscard]] bool truth(const char* field, bool otherwise) const {
    if (!has(field)) return otherwise;
    const Value found = (*this)[field];
    found.require(found.json.is_boolean(), "true or false");
    return found.json.get<bool>();
  }
};

/// Clamps an id that the check will reject anyway.
template <class Rep>
Rep saturate(std::int64_t value) {
  return static_cast<Rep>(std::clamp<std::int64_t>(value, -1, std::numeric_limits<Rep>::max()));
}

std::vector<WorkerId> read_replica(const Value& replica) {
  static constexpr const char* kNames[] = {"id", "workers"};
  replica.expect_fields(kNames);
  if (const std::int64_t id = replica["id"].integer(); id != static_cast<std::int64_t>(replica.index)) {
    replica["id"].fail(
        fmt::format("replicas are listed in order of their ids; expected {}, found {}", replica.index, id));
  }
  std::vector<WorkerId> holders;
  replica["workers"].for_each(
      [&](const Value& worker) { holders.emplace_back(saturate<std::int32_t>(worker.integer())); });
  return holders;
}

Op read_op(const Value& op, const Schedule& schedule) {
  static constexpr const char* kNames[] = {"op",    "stage",          "replica", "micro_batch",
                                           "slice", "weight_version", "paired"};
  op.expect_fields(kNames);
  const std::string& name = op["op"].text();
  const auto kind = name.size() == 1 ? op_kind(name[0]) : std::nullopt;
  if (!kind) op["op"].fail(fmt::format("unknown op '{}'; known: F, B, I, W", printable(name)));
  // Some schedules have the field: their ops must all have it. In other schedules it would have no effect, so it is
  // refused.
  const auto require_if = [&](bool needed, const char* field, const char* whose) {
    if (!needed && op.has(field)) op[field].fail(fmt::format("only ops of {}", whose));
    return needed ? op[field].integer() : 0;
  };
  const std::int64_t slice =
      require_if(schedule.slices != 1, "slice", "a schedule with slices have it (\"slices\": 2 or more)");
  const std::int64_t version = require_if(schedule.updates.has_value(), "weight_version",
                                          "an asynchronous schedule have it (\"synchronous\": false)");
  return {.kind = *kind,
          .replica = ReplicaId(saturate<std::int16_t>(op["replica"].integer())),
          .stage = StageId(saturate<std::int32_t>(op["stage"].integer())),
          .micro_batch = MicroBatchId(saturate<std::int32_t>(op["micro_batch"].integer())),
          .weight_version = saturate<std::int32_t>(version),
          .paired = op.truth("paired", false),
          .slice = saturate<std::int16_t>(slice)};
}

/// Requires the head of the schedule, because slices and updates decide which fields an op has.
std::vector<Op> read_worker(const Value& value, const Schedule& schedule) {
  std::vector<Op> ops;
  value.for_each([&](const Value& entry) {
    ops.push_back(read_op(entry, schedule));
    if (ops.size() < 2 || !ops.back().paired || !ops[ops.size() - 2].paired) return;
    Value{entry.json, entry.source, &entry, "paired"}.fail("the op before is paired with this one already");
  });
  if (!ops.empty() && ops.back().paired) {
    JsonValue(value.json, value.source, fmt::format("{}[{}].paired", value.path(), ops.size() - 1))
        .fail("its worker has no next op to pair it with");
  }
  return ops;
}

// The first line of a CSV file lacks the workers. The fields behind them may be missing.
// clang-format off
constexpr const char* kFileNames[] = {
  "format", "version", "name", "stages", "micro_batches", "replicas",
  "workers", "slices", "groups", "micro_batch_scale", "order", "late_forwards",
  "synchronous", "micro_batches_per_update", "weight_versions", "update_delay"};
// clang-format on

// Fields that need each other are checked in both directions: a field without effect is more likely a mistake than a
// wish.
void read_rules(const Value& file, Schedule& schedule) {
  if (file.has("micro_batch_scale")) {
    const Value scale = file["micro_batch_scale"];
    const double value = scale.json.is_number() ? scale.json.get<double>() : 0;
    scale.require(value > 0 && value <= 1, "a number above 0 and up to 1");
    schedule.micro_batch_scale = value;
  }
  if (file.has("order")) {
    constexpr const char* kExpected = "\"slots\" or \"deepest\"";
    const std::string& order = file["order"].text(kExpected);
    schedule.order = find_named<OpOrder>(order);
    if (!schedule.order || schedule.order == OpOrder::Auto) {
      file["order"].fail(fmt::format("expected {}, found \"{}\"", kExpected, printable(order)));
    }
  }
  schedule.late_forwards = file.truth("late_forwards", false);
  const bool synchronous = file.truth("synchronous", true);
  if (synchronous) {
    for (const char* const name : {"micro_batches_per_update", "weight_versions", "update_delay"}) {
      if (file.has(name)) file[name].fail("only an asynchronous schedule has it (\"synchronous\": false)");
    }
    return;
  }
  schedule.updates = AsynchronousUpdates{.micro_batches = file["micro_batches_per_update"].count(),
                                         .versions = file["weight_versions"].count()};
  if (file.has("update_delay")) schedule.updates->delay = file["update_delay"].count();
}

/// Reads all but the workers.
Schedule read_head(const Value& file) {
  if (const std::string& format = file["format"].text(); format != "chimera-schedule") {
    file["format"].fail(fmt::format("expected \"chimera-schedule\", found \"{}\"", printable(format)));
  }
  if (const std::int64_t version = file["version"].integer(); version != 1) {
    file["version"].fail(fmt::format("this program reads version 1, found {}", version));
  }
  Schedule schedule{.name = file["name"].text(),
                    .stages = file["stages"].count(),
                    .micro_batches = file["micro_batches"].count(),
                    .placement = {},
                    .workers = {}};
  if (schedule.name.size() > kLongestName) file["name"].fail(fmt::format("longer than {} bytes", kLongestName));
  if (file.has("slices")) schedule.slices = file["slices"].count(kMaxSlices);
  if (file.has("groups")) schedule.groups = file["groups"].count();
  // Each factor is at most 10^8, so the product fits in 64 bits.
  if (schedule.stages * schedule.micro_batches > kMaxOps / 2 / schedule.slices) {
    file["micro_batches"].fail(
        fmt::format("{} stages times {} micro-batches{} are more than {} ops", schedule.stages, schedule.micro_batches,
                    schedule.slices == 1 ? "" : fmt::format(" of {} slices", schedule.slices), kMaxOps));
  }
  read_rules(file, schedule);
  file["replicas"].for_each(
      [&](const Value& replica) { schedule.placement.worker_of.push_back(read_replica(replica)); });
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
  if (std::ranges::count(text, '{') > kMaxOpsOfFile) {
    reject("{}: more than {} ops and replicas; a file has at most as many", source, kMaxOpsOfFile);
  }
  const Json json = parse_json(text, source);
  const Value file{json, source};
  file.expect_fields(kFileNames);
  Schedule schedule = read_head(file);
  file["workers"].for_each([&](const Value& worker) { schedule.workers.push_back(read_worker(worker, schedule)); });
  return schedule;
}

Schedule header_from_json(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  const Value file{json, source};
  file.expect_fields(kFileNames);
  if (file.has("workers")) file["workers"].fail("the rows of the file have the ops; leave this field out");
  return read_head(file);
}

}  // namespace chimera

#include "schedule/schedule_json.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/character_iterator.h"
#include "core/choices.h"
#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/printable.h"
#include "core/text_source.h"

// Reads a schedule event by event (nlohmann's SAX interface), to keep only the schedule in memory.

namespace chimera {
namespace {

constexpr std::int64_t kLongestRun = 65536;  // Limits the parser's buffer for one value

/// The characters of a text, or of its first line.
struct Cursor {
  TextSource& text;
  bool one_line = false;
  std::int64_t run = 0;  // Characters since the last value

  [[nodiscard]] bool at_end() const {
    const int c = text.peek();
    return c == TextSource::kEnd || (one_line && c == '\n');
  }
  [[nodiscard]] char peek() const { return static_cast<char>(text.peek()); }
  void advance() {
    text.advance();
    if (++run > kLongestRun) {
      throw ConfigError(fmt::format("{}: JSON: more than {} characters without a value", text.name(), kLongestRun));
    }
  }
};

enum Field : std::uint8_t {
  kFormat,
  kVersion,
  kName,
  kStages,
  kMicroBatches,
  kSlices,
  kGroups,
  kScale,
  kOrder,
  kLateForwards,
  kSynchronous,
  kPerUpdate,
  kVersions,
  kDelay,
  kReplicas,
  kWorkers,
  kId,
  kHolders,
  kKind,
  kStage,
  kReplica,
  kMicroBatch,
  kSlice,
  kWeightVersion,
  kPaired,
};

enum class Type : std::uint8_t { Text, Integer, Number, Truth, List };

struct FieldText {
  const char* name;
  Type type;
  const char* expected;
};
constexpr std::array<FieldText, 25> kFields = {{
    {"format", Type::Text, "a string"},
    {"version", Type::Integer, "an integer"},
    {"name", Type::Text, "a string"},
    {"stages", Type::Integer, "an integer"},
    {"micro_batches", Type::Integer, "an integer"},
    {"slices", Type::Integer, "an integer"},
    {"groups", Type::Integer, "an integer"},
    {"micro_batch_scale", Type::Number, "a number above 0 and up to 1"},
    {"order", Type::Text, "\"slots\" or \"deepest\""},
    {"late_forwards", Type::Truth, "true or false"},
    {"synchronous", Type::Truth, "true or false"},
    {"micro_batches_per_update", Type::Integer, "an integer"},
    {"weight_versions", Type::Integer, "an integer"},
    {"update_delay", Type::Integer, "an integer"},
    {"replicas", Type::List, "an array"},
    {"workers", Type::List, "an array"},
    {"id", Type::Integer, "an integer"},
    {"workers", Type::List, "an array"},
    {"op", Type::Text, "a string"},
    {"stage", Type::Integer, "an integer"},
    {"replica", Type::Integer, "an integer"},
    {"micro_batch", Type::Integer, "an integer"},
    {"slice", Type::Integer, "an integer"},
    {"weight_version", Type::Integer, "an integer"},
    {"paired", Type::Truth, "true or false"},
}};

/// The fields first .. last of an object; fields in `optional` may be missing.
struct Fields {
  Field first;
  Field last;
  std::uint32_t optional;
};
constexpr std::uint32_t bit(Field field) { return std::uint32_t{1} << field; }
constexpr Fields kFileFields = {kFormat, kWorkers,
                                bit(kSlices) | bit(kGroups) | bit(kScale) | bit(kOrder) | bit(kLateForwards) |
                                    bit(kSynchronous) | bit(kPerUpdate) | bit(kVersions) | bit(kDelay)};
constexpr Fields kHeaderFields = {kFormat, kReplicas, kFileFields.optional};
constexpr Fields kReplicaFields = {kId, kHolders, 0};
constexpr Fields kOpFields = {kKind, kPaired, bit(kSlice) | bit(kWeightVersion) | bit(kPaired)};

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

// Written by hand rather than as a JSON value: a value of 10^8 ops would take many times the memory of the schedule.
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

constexpr std::int64_t kMaxWorkers = kMaxOps / 2;  // Each worker has a stage, and each stage at least two ops
constexpr std::size_t kLongestName = 1000;         // Bytes

/// Innermost open container; the current field of an object is `field_`.
enum class Where : std::uint8_t { Text, File, Replicas, Replica, Holders, Workers, Ops, Op };

/// Clamps an id that the check will reject anyway.
template <class Rep>
Rep saturate(std::int64_t value) {
  return static_cast<Rep>(std::clamp<std::int64_t>(value, -1, std::numeric_limits<Rep>::max()));
}

// A state machine over nlohmann's events. `where_` is the innermost open container. Each object has a range of fields
// in kFields; `seen_` has a bit for each. Fields may come in any order, so what depends on several fields (slices and
// weight versions of ops) is checked at the end of the file, with the path of the first op that has or lacks the field.
/// Receives the parser's events. Scalars of the current object are collected in `values_`; the end of the object turns
/// them into an op or the schedule's fields.
class ScheduleReader {
 public:
  ScheduleReader(Cursor& cursor, const Fields& file_fields) : cursor_(cursor), file_fields_(file_fields) {}

  Schedule result() { return std::move(schedule_); }

  bool null() { return mismatch("null"); }
  bool boolean(bool value) { return has_type(Type::Truth) ? keep(value ? 1 : 0) : mismatch("a boolean"); }
  bool number_integer(Json::number_integer_t value) { return integer(value); }
  bool number_unsigned(Json::number_unsigned_t value) {
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    return integer(value > static_cast<std::uint64_t>(kMax) ? kMax : static_cast<std::int64_t>(value));
  }
  bool number_float(Json::number_float_t value, const Json::string_t& /*text*/) {
    return has_type(Type::Number) ? scale(value) : mismatch("a fraction, or a number beyond 2^64");
  }
  bool string(Json::string_t& value);
  bool binary(Json::binary_t& /*value*/) { return mismatch("bytes"); }
  bool start_object(std::size_t /*size*/);
  bool key(Json::string_t& name);
  bool end_object();
  bool start_array(std::size_t /*size*/);
  bool end_array();
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/, const nlohmann::detail::exception& error) {
    fail("JSON", parser_message(error));
  }

 private:
  [[noreturn]] void fail(const std::string& path, const std::string& what) const {
    throw ConfigError(fmt::format("{}: {}: {}", cursor_.text.name(), path.empty() ? "top level" : path, what));
  }
  bool mismatch(const char* found) const {
    fail(value_path(), fmt::format("expected {}, found {}", expected(), found));
  }
  bool accept() {
    cursor_.run = 0;
    return true;
  }
  bool keep(std::int64_t value) {
    values_[field_] = value;
    return accept();
  }

  [[nodiscard]] bool has_type(Type type) const {
    return (where_ == Where::File || where_ == Where::Replica || where_ == Where::Op) && kFields[field_].type == type;
  }
  [[nodiscard]] bool has(Field field) const { return (seen_ & bit(field)) != 0; }
  [[nodiscard]] const char* expected() const;
  [[nodiscard]] std::string object_path() const;
  [[nodiscard]] std::string value_path() const;
  [[nodiscard]] const Fields& fields() const {
    return where_ == Where::File ? file_fields_ : where_ == Where::Replica ? kReplicaFields : kOpFields;
  }

  void enter_object(Where where);
  bool integer(std::int64_t value);
  bool scale(double value);
  void check_integer(std::int64_t value) const;
  void finish_op();
  void finish_worker();
  void finish_file();

  Cursor& cursor_;
  Fields file_fields_;
  Schedule schedule_;
  Where where_ = Where::Text;
  Field field_ = kFormat;                              // Current field of the current object
  std::uint32_t seen_ = 0;                             // Fields of the open objects so far
  std::array<std::int64_t, kFields.size()> values_{};  // [field]: its integer, truth or kind of op; 0 if missing
  std::int64_t num_ops_ = 0;
  std::int64_t num_holders_ = 0;
  std::array<std::optional<std::string>, 2> sliced_op_;     // [whether it has a slice]: first op
  std::array<std::optional<std::string>, 2> versioned_op_;  // [whether it has a weight version]: first op
};

const char* ScheduleReader::expected() const {
  switch (where_) {
    case Where::Text:
    case Where::Replicas:
    case Where::Ops: return "an object";
    case Where::Workers: return "an array";
    case Where::Holders: return "an integer";
    case Where::File:
    case Where::Replica:
    case Where::Op: break;
  }
  return kFields[field_].expected;
}

std::string ScheduleReader::object_path() const {
  if (where_ == Where::Replica) return fmt::format("replicas[{}]", schedule_.placement.num_replicas() - 1);
  if (where_ == Where::Op) {
    return fmt::format("workers[{}][{}]", schedule_.workers.size() - 1, schedule_.workers.back().size());
  }
  return "";
}

std::string ScheduleReader::value_path() const {
  switch (where_) {
    case Where::Text: return "";
    case Where::Replicas: return fmt::format("replicas[{}]", schedule_.placement.num_replicas());
    case Where::Holders:
      return fmt::format("replicas[{}].workers[{}]", schedule_.placement.num_replicas() - 1,
                         schedule_.placement.worker_of.back().size());
    case Where::Workers: return fmt::format("workers[{}]", schedule_.workers.size());
    case Where::Ops:
      return fmt::format("workers[{}][{}]", schedule_.workers.size() - 1, schedule_.workers.back().size());
    case Where::File:
    case Where::Replica:
    case Where::Op: break;
  }
  const std::string object = object_path();
  return object.empty() ? kFields[field_].name : object + "." + kFields[field_].name;
}

// Only the fields of this kind of object are reset: `seen_` of the enclosing objects must survive their entries.
void ScheduleReader::enter_object(Where where) {
  where_ = where;
  for (int f = fields().first; f <= fields().last; ++f) {
    seen_ &= ~bit(static_cast<Field>(f));
    values_[static_cast<std::size_t>(f)] = 0;
  }
}

bool ScheduleReader::start_object(std::size_t) {
  if (where_ == Where::Text) {
    enter_object(Where::File);
  } else if (where_ == Where::Replicas) {
    schedule_.placement.worker_of.emplace_back();
    enter_object(Where::Replica);
  } else if (where_ == Where::Ops) {
    if (++num_ops_ > kMaxOps) fail(value_path(), fmt::format("more than {} ops", kMaxOps));
    enter_object(Where::Op);
  } else {
    mismatch("an object");
  }
  return accept();
}

bool ScheduleReader::key(Json::string_t& name) {
  for (int f = fields().first; f <= fields().last; ++f) {
    if (name != kFields[static_cast<std::size_t>(f)].name) continue;
    field_ = static_cast<Field>(f);
    if (has(field_)) fail(object_path(), fmt::format("field '{}' is given twice", name));
    seen_ |= bit(field_);
    return accept();
  }
  std::vector<std::string> known;
  for (int f = fields().first; f <= fields().last; ++f) known.emplace_back(kFields[static_cast<std::size_t>(f)].name);
  fail(object_path(), unknown_name("field", printable(name), known));
}

bool ScheduleReader::end_object() {
  for (int f = fields().first; f <= fields().last; ++f) {
    if (((seen_ | fields().optional) & bit(static_cast<Field>(f))) != 0) continue;
    fail(object_path(), fmt::format("field '{}' is missing", kFields[static_cast<std::size_t>(f)].name));
  }
  if (where_ == Where::Op) {
    finish_op();
    where_ = Where::Ops;
  } else if (where_ == Where::Replica) {
    where_ = Where::Replicas;
  } else {
    finish_file();
    where_ = Where::Text;
  }
  return accept();
}

bool ScheduleReader::start_array(std::size_t) {
  if (has_type(Type::List)) {
    where_ = field_ == kReplicas ? Where::Replicas : field_ == kWorkers ? Where::Workers : Where::Holders;
  } else if (where_ == Where::Workers) {
    if (std::ssize(schedule_.workers) == kMaxWorkers) {
      fail(value_path(), fmt::format("more than {} workers", kMaxWorkers));
    }
    schedule_.workers.emplace_back();
    where_ = Where::Ops;
  } else {
    mismatch("an array");
  }
  return accept();
}

// Arrays nest in one way only, so the state after an array follows from the state in it.
bool ScheduleReader::end_array() {
  if (where_ == Where::Ops) finish_worker();
  where_ = where_ == Where::Ops ? Where::Workers : where_ == Where::Holders ? Where::Replica : Where::File;
  return accept();
}

bool ScheduleReader::string(Json::string_t& value) {
  if (!has_type(Type::Text)) return mismatch("a string");
  if (field_ == kFormat && value != "chimera-schedule") {
    fail("format", fmt::format("expected \"chimera-schedule\", found \"{}\"", printable(value)));
  }
  if (field_ == kName) {
    if (value.size() > kLongestName) fail("name", fmt::format("longer than {} bytes", kLongestName));
    schedule_.name = value;
  }
  if (field_ == kOrder) {
    schedule_.order = find_named<OpOrder>(value);
    if (!schedule_.order || schedule_.order == OpOrder::Auto) {
      fail("order", fmt::format("expected {}, found \"{}\"", expected(), printable(value)));
    }
  }
  if (field_ != kKind) return accept();
  const auto kind = value.size() == 1 ? op_kind(value[0]) : std::nullopt;
  if (!kind) fail(value_path(), fmt::format("unknown op '{}'; known: F, B, I, W", printable(value)));
  return keep(static_cast<std::int64_t>(*kind));
}

bool ScheduleReader::integer(std::int64_t value) {
  if (where_ == Where::Holders) {
    if (++num_holders_ > kMaxOps) fail(value_path(), fmt::format("more than {} stages of replicas", kMaxOps));
    schedule_.placement.worker_of.back().emplace_back(saturate<std::int32_t>(value));
    return accept();
  }
  if (has_type(Type::Number)) return scale(static_cast<double>(value));
  if (!has_type(Type::Integer)) return mismatch("a number");
  check_integer(value);
  return keep(value);
}

bool ScheduleReader::scale(double value) {
  if (!(value > 0 && value <= 1)) fail(value_path(), fmt::format("expected {}, found {}", expected(), value));
  schedule_.micro_batch_scale = value;
  return accept();
}

void ScheduleReader::check_integer(std::int64_t value) const {
  const auto require_up_to = [&](std::int64_t most) {
    if (value < 1 || value > most) fail(value_path(), fmt::format("expected 1 to {}, found {}", most, value));
  };
  const auto id = static_cast<std::int64_t>(schedule_.placement.num_replicas()) - 1;
  switch (field_) {
    case kVersion:
      if (value != 1) fail("version", fmt::format("this program reads version 1, found {}", value));
      break;
    case kId:
      if (value == id) break;
      fail(value_path(), fmt::format("replicas are listed in order of their ids; expected {}, found {}", id, value));
    case kSlices: require_up_to(kMaxSlices); break;
    case kStages:
    case kMicroBatches:
    case kGroups:
    case kPerUpdate:
    case kVersions:
    case kDelay: require_up_to(kMaxOps); break;
    default: break;
  }
}

// Whether ops must have slices or versions is known only at the end of the file. The first op of each kind is kept for
// the message.
void ScheduleReader::finish_op() {
  for (auto [first, field] : {std::pair(&sliced_op_, kSlice), std::pair(&versioned_op_, kWeightVersion)}) {
    auto& op = (*first)[has(field) ? 1 : 0];
    if (!op) op = object_path();
  }
  const Op op{.kind = static_cast<OpKind>(values_[kKind]),
              .replica = ReplicaId(saturate<std::int16_t>(values_[kReplica])),
              .stage = StageId(saturate<std::int32_t>(values_[kStage])),
              .micro_batch = MicroBatchId(saturate<std::int32_t>(values_[kMicroBatch])),
              .weight_version = saturate<std::int32_t>(values_[kWeightVersion]),
              .paired = values_[kPaired] != 0,
              .slice = saturate<std::int16_t>(values_[kSlice])};
  auto& ops = schedule_.workers.back();
  if (op.paired && !ops.empty() && ops.back().paired) {
    fail(object_path() + ".paired", "the op before is paired with this one already");
  }
  ops.push_back(op);
}

void ScheduleReader::finish_worker() {
  const auto& ops = schedule_.workers.back();
  if (ops.empty() || !ops.back().paired) return;
  fail(fmt::format("workers[{}][{}].paired", schedule_.workers.size() - 1, ops.size() - 1),
       "its worker has no next op to pair it with");
}

void ScheduleReader::finish_file() {
  schedule_.stages = values_[kStages];
  schedule_.micro_batches = values_[kMicroBatches];
  schedule_.slices = has(kSlices) ? values_[kSlices] : 1;
  schedule_.groups = has(kGroups) ? values_[kGroups] : 1;
  schedule_.late_forwards = values_[kLateForwards] != 0;
  if (schedule_.stages * schedule_.micro_batches > kMaxOps / 2 / schedule_.slices) {
    fail("micro_batches",
         fmt::format("{} stages times {} micro-batches{} are more than {} ops", schedule_.stages,
                     schedule_.micro_batches,
                     schedule_.slices == 1 ? "" : fmt::format(" of {} slices", schedule_.slices), kMaxOps));
  }
  if (schedule_.slices == 1 && sliced_op_[1]) {
    fail(*sliced_op_[1] + ".slice", "only ops of a schedule with slices have it (\"slices\": 2 or more)");
  }
  if (schedule_.slices != 1 && sliced_op_[0]) fail(*sliced_op_[0], "field 'slice' is missing");
  const bool synchronous = !has(kSynchronous) || values_[kSynchronous] != 0;
  for (const Field field : {kPerUpdate, kVersions, kDelay}) {
    if (synchronous && has(field)) {
      fail(kFields[field].name, "only an asynchronous schedule has it (\"synchronous\": false)");
    }
    if (synchronous || has(field) || field == kDelay) continue;
    fail("", fmt::format("field '{}' is missing", kFields[field].name));
  }
  if (synchronous && versioned_op_[1]) {
    fail(*versioned_op_[1] + ".weight_version",
         "only ops of an asynchronous schedule have it (\"synchronous\": false)");
  }
  if (synchronous) return;
  if (versioned_op_[0]) fail(*versioned_op_[0], "field 'weight_version' is missing");
  schedule_.updates = AsynchronousUpdates{.micro_batches = values_[kPerUpdate], .versions = values_[kVersions]};
  if (has(kDelay)) schedule_.updates->delay = values_[kDelay];
}

Schedule read(Cursor cursor, const Fields& file_fields) {
  ScheduleReader reader(cursor, file_fields);
  (void)Json::sax_parse(CharacterIterator(cursor), CharacterIterator<Cursor>(), &reader);
  return reader.result();
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

Schedule schedule_from_json(TextSource& text) { return read(Cursor{.text = text}, kFileFields); }

Schedule schedule_from_json(std::string_view text, const std::string& source) {
  TextSource in(text, source);
  return schedule_from_json(in);
}

Schedule header_from_json(TextSource& text) { return read(Cursor{.text = text, .one_line = true}, kHeaderFields); }

}  // namespace chimera

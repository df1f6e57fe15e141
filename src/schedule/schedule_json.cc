#include "schedule/schedule_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/nearest.h"

namespace chimera {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "chimera-schedule";
constexpr int kVersion = 1;

std::string op_json(const Op& op, bool versioned) {
  return fmt::format(R"({{"op": "{}", "stage": {}, "replica": {}, "micro_batch": {}{}}})", letter(op.kind),
                     op.stage.value(), op.replica.value(), op.micro_batch.value(),
                     versioned ? fmt::format(", \"weight_version\": {}", op.weight_version) : "");
}

/// Reads fields and knows the path to them, for messages such as `workers[2][5].stage`.
class Reader {
 public:
  explicit Reader(std::string source) : source_(std::move(source)) {}

  [[noreturn]] void fail(const std::string& path, const std::string& what) const {
    throw ConfigError(fmt::format("{}: {}: {}", source_, path.empty() ? "top level" : path, what));
  }

  void expect_object(const Json& value, const std::string& path, std::initializer_list<const char*> fields) const {
    if (!value.is_object()) fail(path, fmt::format("expected an object, found {}", value.type_name()));
    const std::vector<std::string> known(fields.begin(), fields.end());
    for (const auto& item : value.items()) {
      if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
        fail(path, unknown_name("field", item.key(), known));
      }
    }
  }

  const Json& field(const Json& object, const std::string& path, const char* name) const {
    const auto found = object.find(name);
    if (found == object.end()) fail(path, fmt::format("field '{}' is missing", name));
    return *found;
  }

  const Json& array(const Json& object, const std::string& path, const char* name) const {
    const Json& value = field(object, path, name);
    if (!value.is_array()) fail(join(path, name), fmt::format("expected an array, found {}", value.type_name()));
    return value;
  }

  std::int64_t integer(const Json& value, const std::string& path) const {
    if (!value.is_number_integer()) fail(path, fmt::format("expected an integer, found {}", value.type_name()));
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
      return std::numeric_limits<std::int64_t>::max();
    }
    return value.get<std::int64_t>();
  }

  std::int64_t integer(const Json& object, const std::string& path, const char* name) const {
    return integer(field(object, path, name), join(path, name));
  }

  std::string text(const Json& object, const std::string& path, const char* name) const {
    const Json& value = field(object, path, name);
    if (!value.is_string()) fail(join(path, name), fmt::format("expected a string, found {}", value.type_name()));
    return value.get<std::string>();
  }

  static std::string join(const std::string& path, const char* name) {
    return path.empty() ? std::string(name) : path + "." + name;
  }

 private:
  std::string source_;
};

template <class IdType, class Rep>
IdType saturated(std::int64_t value) {
  return IdType(std::clamp<std::int64_t>(value, -1, std::numeric_limits<Rep>::max()));
}

StageId stage_id(std::int64_t v) { return saturated<StageId, std::int32_t>(v); }
WorkerId worker_id(std::int64_t v) { return saturated<WorkerId, std::int32_t>(v); }
ReplicaId replica_id(std::int64_t v) { return saturated<ReplicaId, std::int16_t>(v); }
MicroBatchId micro_batch_id(std::int64_t v) { return saturated<MicroBatchId, std::int32_t>(v); }

std::int32_t read_version(const Reader& reader, const Json& value, const std::string& path) {
  return static_cast<std::int32_t>(
      saturated<StageId, std::int32_t>(reader.integer(value, path, "weight_version")).value());
}

Op read_op(const Reader& reader, const Json& value, const std::string& path, bool versioned) {
  if (versioned) {
    reader.expect_object(value, path, {"op", "stage", "replica", "micro_batch", "weight_version"});
  } else {
    reader.expect_object(value, path, {"op", "stage", "replica", "micro_batch"});
  }
  const std::string name = reader.text(value, path, "op");
  const auto kind = name.size() == 1 ? op_kind(name[0]) : std::nullopt;
  if (!kind) reader.fail(Reader::join(path, "op"), fmt::format("unknown op '{}'; known: F, B, I, W", name));
  return Op{*kind, replica_id(reader.integer(value, path, "replica")), stage_id(reader.integer(value, path, "stage")),
            micro_batch_id(reader.integer(value, path, "micro_batch")),
            versioned ? read_version(reader, value, path) : 0};
}

Placement read_placement(const Reader& reader, const Json& root) {
  Placement placement;
  const Json& replicas = reader.array(root, "", "replicas");
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    const std::string path = fmt::format("replicas[{}]", r);
    reader.expect_object(replicas[r], path, {"id", "workers"});
    if (reader.integer(replicas[r], path, "id") != static_cast<std::int64_t>(r)) {
      reader.fail(path + ".id", fmt::format("replicas are listed in order of their ids; expected {}", r));
    }
    auto& row = placement.worker_of.emplace_back();
    const Json& workers = reader.array(replicas[r], path, "workers");
    for (std::size_t s = 0; s < workers.size(); ++s) {
      row.push_back(worker_id(reader.integer(workers[s], fmt::format("{}.workers[{}]", path, s))));
    }
  }
  return placement;
}

std::vector<std::vector<Op>> read_workers(const Reader& reader, const Json& root, bool versioned) {
  std::vector<std::vector<Op>> workers;
  const Json& lists = reader.array(root, "", "workers");
  for (std::size_t w = 0; w < lists.size(); ++w) {
    const std::string path = fmt::format("workers[{}]", w);
    if (!lists[w].is_array()) reader.fail(path, fmt::format("expected an array, found {}", lists[w].type_name()));
    auto& ops = workers.emplace_back();
    ops.reserve(lists[w].size());
    for (std::size_t i = 0; i < lists[w].size(); ++i) {
      ops.push_back(read_op(reader, lists[w][i], fmt::format("workers[{}][{}]", w, i), versioned));
    }
  }
  return workers;
}

std::int64_t read_count(const Reader& reader, const Json& root, const char* name) {
  const std::int64_t value = reader.integer(root, "", name);
  if (value < 1 || value > kMostOps) reader.fail(name, fmt::format("expected 1 to {}, found {}", kMostOps, value));
  return value;
}

double read_scale(const Reader& reader, const Json& root) {
  const auto found = root.find("micro_batch_scale");
  if (found == root.end()) return 1;
  const double scale = found->is_number() ? found->get<double>() : 0;
  if (!(scale > 0 && scale <= 1)) {
    reader.fail("micro_batch_scale", fmt::format("expected a number above 0 and up to 1, found {}", found->dump()));
  }
  return scale;
}

/// A schedule is asynchronous where "synchronous" is false; only then it says how it updates.
std::optional<AsynchronousUpdates> read_updates(const Reader& reader, const Json& root) {
  const auto found = root.find("synchronous");
  if (found != root.end() && !found->is_boolean()) {
    reader.fail("synchronous", fmt::format("expected true or false, found {}", found->type_name()));
  }
  if (found == root.end() || found->get<bool>()) {
    for (const char* name : {"micro_batches_per_update", "weight_versions", "update_delay"}) {
      if (root.contains(name)) reader.fail(name, "only an asynchronous schedule has it (\"synchronous\": false)");
    }
    return std::nullopt;
  }
  AsynchronousUpdates updates{read_count(reader, root, "micro_batches_per_update"),
                              read_count(reader, root, "weight_versions")};
  if (root.contains("update_delay")) updates.delay = read_count(reader, root, "update_delay");
  return updates;
}

Json parse(const Reader& reader, const std::string& text) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    std::string what = error.what();
    if (const auto bracket = what.find("] "); bracket != std::string::npos) what.erase(0, bracket + 2);
    reader.fail("JSON", what);
  }
}

}  // namespace

std::string to_json(const Schedule& schedule) {
  std::string out =
      fmt::format("{{\"format\": \"{}\", \"version\": {}, \"name\": {},\n \"stages\": {}, \"micro_batches\": {},\n",
                  kFormat, kVersion, Json(schedule.name).dump(), schedule.stages, schedule.micro_batches);
  if (schedule.micro_batch_scale != 1) out += fmt::format(" \"micro_batch_scale\": {},\n", schedule.micro_batch_scale);
  if (schedule.updates) {
    out += fmt::format(" \"synchronous\": false, \"micro_batches_per_update\": {}, \"weight_versions\": {},\n",
                       schedule.updates->micro_batches, schedule.updates->versions);
    if (schedule.updates->delay) out += fmt::format(" \"update_delay\": {},\n", *schedule.updates->delay);
  }
  out += " \"replicas\": [";
  for (std::size_t r = 0; r < schedule.placement.num_replicas(); ++r) {
    out += fmt::format("{}{{\"id\": {}, \"workers\": [", r == 0 ? "" : ", ", r);
    const auto& row = schedule.placement.worker_of[r];
    for (std::size_t s = 0; s < row.size(); ++s) out += fmt::format("{}{}", s == 0 ? "" : ", ", row[s].value());
    out += "]}";
  }
  out += "],\n \"workers\": [";
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    out += w == 0 ? "\n  [" : ",\n  [";
    const auto& ops = schedule.workers[w];
    for (std::size_t i = 0; i < ops.size(); ++i)
      out += (i == 0 ? "" : ", ") + op_json(ops[i], schedule.updates.has_value());
    out += "]";
  }
  return out + "]}\n";
}

Schedule schedule_from_json(const std::string& text, const std::string& source) {
  const Reader reader(source);
  const Json root = parse(reader, text);
  reader.expect_object(root, "",
                       {"format", "version", "name", "stages", "micro_batches", "micro_batch_scale", "synchronous",
                        "micro_batches_per_update", "weight_versions", "update_delay", "replicas", "workers"});
  if (const auto format = reader.text(root, "", "format"); format != kFormat) {
    reader.fail("format", fmt::format("expected \"{}\", found \"{}\"", kFormat, format));
  }
  if (const auto version = reader.integer(root, "", "version"); version != kVersion) {
    reader.fail("version", fmt::format("this program reads version {}, found {}", kVersion, version));
  }
  Schedule schedule;
  schedule.name = reader.text(root, "", "name");
  schedule.stages = read_count(reader, root, "stages");
  schedule.micro_batches = read_count(reader, root, "micro_batches");
  if (schedule.stages * schedule.micro_batches > kMostOps / 2) {
    reader.fail("micro_batches", fmt::format("{} stages times {} micro-batches are more than {} ops", schedule.stages,
                                             schedule.micro_batches, kMostOps));
  }
  schedule.placement = read_placement(reader, root);
  schedule.micro_batch_scale = read_scale(reader, root);
  schedule.updates = read_updates(reader, root);
  schedule.workers = read_workers(reader, root, schedule.updates.has_value());
  return schedule;
}

}  // namespace chimera

#include "plan/machine.h"

#include <algorithm>
#include <cmath>

#include "core/choices.h"
#include "core/files.h"
#include "core/json.h"
#include "core/reject.h"
#include "model_config/config.h"

namespace chimera {
namespace {

constexpr const char* kFormat = "chimera-machine";
constexpr std::int64_t kVersion = 1;
constexpr double kMaxFlops = 1e24;  // FLOP/s

std::string read_text(const std::string& path) {
  try {
    return read_whole(path);
  } catch (const ConfigError& error) {
    reject("machine profile {}; `chimera profile` writes such files", error.what());
  }
}

template <class Fields>
std::vector<const char*> field_names(const Fields& fields, std::vector<const char*> others) {
  for (const auto& field : fields) others.push_back(field.name);
  return others;
}

template <class Struct, class Fields>
void read_numbers(const JsonValue& value, const Fields& fields, Struct& into) {
  for (const auto& field : fields) {
    // Optional fields keep their defaults, so that profiles of earlier versions can be read.
    if (field.required || value.has(field.name)) into.*field.value = value.number(field.name, field.most);
  }
}

/// Reads an object that has only these fields.
template <class Struct, class Fields>
Struct read_struct(const JsonValue& value, const Fields& fields) {
  value.expect_object(field_names(fields, {}));
  Struct result;
  read_numbers(value, fields, result);
  return result;
}

using OrderedJson = nlohmann::ordered_json;

template <class Struct, class Fields>
OrderedJson numbers_json(const Struct& from, const Fields& fields) {
  OrderedJson json;
  for (const auto& field : fields) json[field.name] = from.*field.value;
  return json;
}

constexpr auto kKernelNumbers = std::to_array<NumberField<MachineProfile>>(
    {{"activation_scale", &MachineProfile::activation_scale, kMaxRatio, true},
     {"score_bytes", &MachineProfile::score_bytes, kMaxRatio, true},
     {"score_traffic", &MachineProfile::score_traffic, kMaxRatio},
     {"block_launch", &MachineProfile::block_launch, kMaxSeconds}});

template <NamedEnum Enum>
Enum choice(const JsonValue& value, const char* field) {
  const std::string name = value.text(field);
  const auto found = find_named<Enum>(name);
  if (!found) value.field(field).fail(unknown_name(field, name, names_of<Enum>()));
  return *found;
}

RopeScaling read_rope_scaling(const JsonValue& value) {
  value.expect_object({"type", "factor", "low_frequency_factor", "high_frequency_factor", "original_positions"});
  RopeScaling scaling{.type = choice<RopeScalingType>(value, "type")};
  if (scaling.type != RopeScalingType::None) scaling.factor = value.number("factor");
  if (scaling.type != RopeScalingType::Llama3) return scaling;
  scaling.low_frequency_factor = value.number("low_frequency_factor");
  scaling.high_frequency_factor = value.number("high_frequency_factor");
  scaling.original_positions = value.count("original_positions", 1);
  return scaling;
}

void read_llamas_fields(const JsonValue& value, ModelConfig& model) {
  model.key_value_heads = value.count("key_value_heads", 1);
  model.head_size = value.count("head_size", 1);
  if (value.has("sliding_window")) model.sliding_window = value.count("sliding_window", 1);
  model.rope_theta = value.number("rope_theta");
  model.rope_scaling = read_rope_scaling(value.field("rope_scaling"));
  model.attention_bias = choice<AttentionBias>(value, "attention_bias");
  model.feed_forward_bias = value.truth("feed_forward_bias");
  model.query_key_norm = value.truth("query_key_norm");
}

ModelConfig read_model(const JsonValue& value) {
  ModelConfig model;
  model.family = choice<Family>(value, "family");
  std::vector<const char*> fields = {"name",       "family",    "hidden", "heads",       "feed_forward",
                                     "vocabulary", "positions", "tied",   "norm_epsilon"};
  if (model.family == Family::Llama) {
    fields.insert(fields.end(), {"key_value_heads", "head_size", "sliding_window", "rope_theta", "rope_scaling",
                                 "attention_bias", "feed_forward_bias", "query_key_norm"});
    read_llamas_fields(value, model);
  }
  value.expect_object(fields);
  model.name = value.text("name");
  if (value.has("norm_epsilon")) model.norm_epsilon = value.number("norm_epsilon");
  // Times are of one layer (profile/profiler.cc).
  model.layers = 1;
  model.hidden = value.count("hidden", 1);
  model.heads = value.count("heads", 1);
  model.feed_forward = value.count("feed_forward", 1);
  model.vocabulary = value.count("vocabulary", 1);
  model.positions = value.count("positions", 1);
  model.tied = value.truth("tied");
  try {
    require_valid(model);
  } catch (const ConfigError& error) {
    value.fail(error.what());
  }
  return model;
}

LayerTime read_time(const JsonValue& value) {
  value.expect_object(field_names(kLayerTimeNumbers, {"micro_batch_size"}));
  LayerTime time{.micro_batch_size = value.count("micro_batch_size", 1)};
  read_numbers(value, kLayerTimeNumbers, time);
  // Of a profile that did not measure it: a second forward takes as long as the first.
  if (!value.has("recompute")) time.recompute = time.forward;
  return time;
}

LayerTimes read_layer(const JsonValue& value) {
  value.expect_object({"kind", "model", "sequence", "dtype", "tensor_parallel", "times"});
  LayerTimes layer;
  if (value.has("tensor_parallel")) layer.tensor_parallel = value.count("tensor_parallel", 1);
  layer.kind = choice<LayerKind>(value, "kind");
  layer.model = read_model(value.field("model"));
  layer.sequence = value.count("sequence", 1);
  if (layer.sequence > layer.model.positions)
    value.field("sequence")
        .fail(fmt::format("{} tokens are more than the model's {} positions", layer.sequence, layer.model.positions));
  layer.dtype = choice<DataType>(value, "dtype");
  const JsonValue times = value.field("times");
  for (const JsonValue& time : times.list()) layer.times.push_back(read_time(time));
  if (layer.times.empty()) times.fail("expected at least one micro-batch size");
  for (std::size_t i = 1; i < layer.times.size(); ++i) {
    if (layer.times[i - 1].micro_batch_size >= layer.times[i].micro_batch_size) {
      times.fail(fmt::format("micro-batch size {} follows {}; expected ascending sizes",
                             layer.times[i].micro_batch_size, layer.times[i - 1].micro_batch_size));
    }
  }
  return layer;
}

LinkProfile read_links(const JsonValue& value) {
  value.expect_object({"within_node", "between_nodes"});
  return {read_link(value.field("within_node")), read_link(value.field("between_nodes"))};
}

void read_kernels(const JsonValue& value, MachineProfile& machine) {
  value.expect_object(field_names(kKernelNumbers, {"whole_head"}));
  read_numbers(value, kKernelNumbers, machine);
  if (value.has("whole_head")) machine.whole_head = value.truth("whole_head");
}

DeviceModel read_device(const JsonValue& value) {
  const auto device = read_struct<DeviceModel>(value, kDeviceNumbers);
  for (const char* share : {"products", "attention", "fused_attention"}) {
    if (value.number(share, 1) == 0) value.field(share).fail("expected a number above 0");
  }
  return device;
}

TestedErrors read_errors(const JsonValue& value) {
  value.expect_object({"median", "low", "high", "runs"});
  TestedErrors errors{value.number("median", kMaxRatio), 0, value.number("high", kMaxRatio), value.count("runs", 1)};
  // Numbers of files are not negative, so `low` is the part below the prediction.
  errors.low = -value.number("low", 1);
  return errors;
}

std::map<DataType, double> read_matrix_flops(const JsonValue& value) {
  value.expect_object({"float32", "float64", "bfloat16"});
  std::map<DataType, double> flops;
  for (const Named<DataType>& type : kNames<DataType>) {
    if (!value.has(type.name)) continue;
    flops[type.value] = value.number(type.name, kMaxFlops);
    if (flops[type.value] == 0) value.field(type.name).fail("expected a number above 0");
  }
  return flops;
}

OrderedJson layer_json(const LayerTimes& layer) {
  const ModelConfig& model = layer.model;
  OrderedJson times = OrderedJson::array();
  for (const LayerTime& time : layer.times) {
    times.push_back({{"micro_batch_size", time.micro_batch_size}});
    times.back().update(numbers_json(time, kLayerTimeNumbers));
  }
  OrderedJson sizes = {{"name", model.name}};
  sizes.update(layer_sizes_json(model));
  OrderedJson json = {{"kind", to_text(layer.kind)},
                      {"model", sizes},
                      {"sequence", layer.sequence},
                      {"dtype", to_text(layer.dtype)},
                      {"times", times}};
  if (layer.tensor_parallel > 1) json["tensor_parallel"] = layer.tensor_parallel;
  return json;
}

OrderedJson matrix_flops_json(const MachineProfile& machine) {
  OrderedJson flops = OrderedJson::object();
  for (const auto& [type, number] : machine.matrix_flops) flops[to_text(type)] = number;
  return flops;
}

OrderedJson links_json(const LinkProfile& links) {
  return {{"within_node", link_json(links.within_node)}, {"between_nodes", link_json(links.between_nodes)}};
}

}  // namespace

double sum_seconds(const MachineProfile& machine, const LinkTimes& link, std::int64_t copies, double bytes) {
  if (copies <= 1) return 0;
  const auto count = static_cast<double>(copies);
  // Rabenseifner's formula, with a loss of bandwidth that grows with the number of ranks.
  const double slower = 1 + machine.sum_rank_loss * (std::log2(count) - 1);
  return 2 * std::log2(count) * link.alpha + 2 * (count - 1) / count * link.beta * slower * bytes;
}

LinkTimes link_of_rings(const MachineProfile& machine, std::int64_t near) {
  const auto& [within, between] = machine.all_reduce;
  const auto rings = static_cast<double>(near);
  // The rings of a node share its interface: each has a part of the bytes and a part of the rate.
  const double slowdown = 1 + (rings - 1) * machine.contention.node_transfers;
  LinkTimes link = between;
  link.beta = std::max(std::min(within.beta, between.beta), between.beta * slowdown / rings);
  return link;
}

double matrix_peak(const MachineProfile& machine, DataType dtype, std::int64_t workers, std::int64_t threads) {
  const auto flops = machine.matrix_flops.find(dtype);
  if (flops == machine.matrix_flops.end()) return 0;
  if (machine.cores == 0) return flops->second * static_cast<double>(workers);
  // More workers than cores have no more FLOP/s together than the cores.
  const auto cores = static_cast<double>(std::min(workers * threads, machine.cores));
  return flops->second * cores / static_cast<double>(machine.threads);
}

ReservedBytes reserved_on_gpu(double memory_bytes) {
  return {.context = 1e9, .communicators = 1e9, .margin = 0.02 * memory_bytes};
}

std::string to_text(const ReservedBytes& reserved) {
  std::string text;
  const auto add = [&](double bytes, const char* what) {
    if (bytes > 0) text += fmt::format("{}{:.2f} GiB {}", text.empty() ? "" : ", ", bytes / kGiB, what);
  };
  add(reserved.context, "for the CUDA context");
  add(reserved.communicators, "for NCCL");
  add(reserved.graphs, "for CUDA graphs");
  add(reserved.margin, "in reserve");
  return text;
}

MachineProfile machine_from_json(const std::string& text, const std::string& source) {
  const nlohmann::json json = parse_json(text, source);
  const JsonValue root(json, source);
  root.expect_object(field_names(
      kMachineNumbers,
      {"format",       "version", "name",         "sources",    "cores",        "threads",          "workers_per_node",
       "memory_bytes", "layers",  "reserved",     "kernels",    "device",       "errors",           "point_to_point",
       "all_reduce",   "op_sum",  "matrix_flops", "contention", "message_copy", "node_message_copy"}));
  if (root.text("format") != kFormat) root.field("format").fail(fmt::format("expected '{}'", kFormat));
  if (root.count("version") != kVersion) root.field("version").fail(fmt::format("expected {}", kVersion));
  MachineProfile machine;
  machine.name = root.text("name");
  for (const JsonValue& each : root.field("sources").list()) machine.sources.push_back(each.text());
  machine.cores = root.count("cores");
  machine.threads = root.count("threads", 1);
  machine.workers_per_node = root.count("workers_per_node", 1);
  machine.memory_bytes = root.number("memory_bytes", kMaxBytes);
  if (root.has("reserved")) machine.reserved = read_struct<ReservedBytes>(root.field("reserved"), kReservedNumbers);
  if (root.has("kernels")) read_kernels(root.field("kernels"), machine);
  if (root.has("device")) machine.device = read_device(root.field("device"));
  if (root.has("errors")) {
    const JsonValue errors = root.field("errors");
    errors.expect_object({"eager", "fused"});
    for (const Named<Kernels>& kind : kNames<Kernels>) {
      if (errors.has(kind.name)) machine.errors[kind.value] = read_errors(errors.field(kind.name));
    }
  }
  if (root.has("layers") || !machine.has_device()) {
    for (const JsonValue& layer : root.field("layers").list()) machine.layers.push_back(read_layer(layer));
    if (machine.layers.empty()) root.field("layers").fail("expected at least one layer");
  }
  machine.point_to_point = read_links(root.field("point_to_point"));
  machine.all_reduce = read_links(root.field("all_reduce"));
  if (root.has("op_sum")) machine.op_sum = read_link(root.field("op_sum"));
  read_numbers(root, kMachineNumbers, machine);
  if ((machine.score_traffic > 0 || machine.has_device()) && machine.memory_bandwidth == 0) {
    const JsonValue needs = machine.has_device() ? root.field("device") : root.field("kernels").field("score_traffic");
    needs.fail("needs memory_bandwidth, in bytes per second");
  }
  if (root.has("message_copy")) machine.message_copy = read_link(root.field("message_copy"));
  if (root.has("node_message_copy")) machine.node_message_copy = read_link(root.field("node_message_copy"));
  if (root.has("contention"))
    machine.contention = read_struct<Contention>(root.field("contention"), kContentionNumbers);
  if (root.has("matrix_flops")) machine.matrix_flops = read_matrix_flops(root.field("matrix_flops"));
  for (const DataType type : {DataType::Float32, DataType::BFloat16}) {
    if (machine.has_device() && !machine.matrix_flops.contains(type))
      root.field("device").fail(fmt::format("needs matrix_flops of {}", to_text(type)));
  }
  return machine;
}

MachineProfile read_machine(const std::string& path) {
  return machine_from_json(read_text(path), path == "-" ? "standard input" : path);
}

std::string to_json(const MachineProfile& machine) {
  OrderedJson layers = OrderedJson::array();
  for (const LayerTimes& layer : machine.layers) layers.push_back(layer_json(layer));
  OrderedJson kernels = numbers_json(machine, kKernelNumbers);
  kernels["whole_head"] = machine.whole_head;
  OrderedJson json = {{"format", kFormat},
                      {"version", kVersion},
                      {"name", machine.name},
                      {"sources", machine.sources},
                      {"cores", machine.cores},
                      {"threads", machine.threads},
                      {"workers_per_node", machine.workers_per_node},
                      {"memory_bytes", machine.memory_bytes},
                      {"kernels", kernels},
                      {"layers", layers},
                      {"point_to_point", links_json(machine.point_to_point)},
                      {"all_reduce", links_json(machine.all_reduce)},
                      {"message_copy", link_json(machine.message_copy)},
                      {"node_message_copy", link_json(machine.node_message_copy)},
                      {"contention", numbers_json(machine.contention, kContentionNumbers)},
                      {"matrix_flops", matrix_flops_json(machine)}};
  json.update(numbers_json(machine, kMachineNumbers));
  if (machine.has_device()) json["device"] = numbers_json(machine.device, kDeviceNumbers);
  if (machine.has_device() && machine.layers.empty()) json.erase("layers");
  for (const auto& [kind, errors] : machine.errors)
    json["errors"][std::string(to_text(kind))] = {
        {"median", errors.median}, {"low", -errors.low}, {"high", errors.high}, {"runs", errors.runs}};
  if (machine.reserved.all() > 0) json["reserved"] = numbers_json(machine.reserved, kReservedNumbers);
  if (machine.op_sum != LinkTimes{}) json["op_sum"] = link_json(machine.op_sum);
  if (machine.host_bandwidth == 0) json.erase("host_bandwidth");
  return json_report(json);
}

LinkTimes read_link(const JsonValue& value) { return read_struct<LinkTimes>(value, kLinkNumbers); }

nlohmann::ordered_json link_json(const LinkTimes& times) {
  nlohmann::ordered_json json = {{"alpha", times.alpha}, {"beta", times.beta}};
  if (times.burst > 0) json["burst"] = times.burst;
  return json;
}

}  // namespace chimera

#include "plan/machine.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <functional>

#include "core/choices.h"
#include "core/files.h"
#include "core/json.h"
#include "model_config/config.h"

namespace chimera {
namespace {

constexpr const char* kFormat = "chimera-machine";
constexpr std::int64_t kVersion = 1;
constexpr double kMaxFlops = 1e24;  // FLOP/s
constexpr const char* kAboveZero = "expected a number above 0";

/// Visits numbers of a struct.
template <class Struct, class Fields>
void visit_numbers(JsonFields& json, Struct& of, const Fields& fields) {
  for (const auto& field : fields) {
    // Optional fields keep their defaults, so that profiles of earlier versions can be read.
    if (field.required || json.has(field.name, true)) json.number(field.name, of.*field.value, field.most);
  }
}

constexpr auto kKernelNumbers = std::to_array<NumberField<MachineProfile>>(
    {{"activation_scale", &MachineProfile::activation_scale, kMaxRatio, true},
     {"score_bytes", &MachineProfile::score_bytes, kMaxRatio, true},
     {"score_traffic", &MachineProfile::score_traffic, kMaxRatio},
     {"block_launch", &MachineProfile::block_launch, kMaxSeconds}});

void visit_model(JsonFields& json, ModelConfig& model) {
  json.field("name", model.name);
  visit_layer_sizes(json, model);
  // Times are of one layer (profile/profiler.cc).
  model.layers = 1;
}

void visit_time(JsonFields& json, LayerTime& time) {
  json.count("micro_batch_size", time.micro_batch_size, 1);
  visit_numbers(json, time, kLayerTimeNumbers);
  // Of a profile that did not measure it: a second forward takes as long as the first.
  if (!json.has("recompute", true)) time.recompute = time.forward;
}

void require_valid_layer(const JsonFields& json, const LayerTimes& layer) {
  try {
    require_valid(layer.model);
  } catch (const ConfigError& error) {
    json.require(false, "model", error.what());
  }
  json.require(layer.sequence <= layer.model.positions, "sequence",
               fmt::format("{} tokens are more than the model's {} positions", layer.sequence, layer.model.positions));
}

void visit_layer(JsonFields& json, LayerTimes& layer) {
  json.field("kind", layer.kind);
  json.object("model", layer.model, visit_model);
  json.count("sequence", layer.sequence, 1);
  json.field("dtype", layer.dtype);
  visit_times(json, layer.times);
  if (json.has("tensor_parallel", layer.tensor_parallel > 1)) json.count("tensor_parallel", layer.tensor_parallel, 1);
  if (json.reads()) require_valid_layer(json, layer);
}

void visit_links(JsonFields& json, LinkProfile& links) {
  json.object("within_node", links.within_node, visit_link);
  json.object("between_nodes", links.between_nodes, visit_link);
}

void visit_kernels(JsonFields& json, MachineProfile& machine) {
  visit_numbers(json, machine, kKernelNumbers);
  if (json.has("whole_head", true)) json.field("whole_head", machine.whole_head);
}

void visit_contention(JsonFields& json, Contention& contention) { visit_numbers(json, contention, kContentionNumbers); }

void visit_reserved(JsonFields& json, ReservedBytes& reserved) { visit_numbers(json, reserved, kReservedNumbers); }

void visit_device(JsonFields& json, DeviceModel& device) {
  visit_numbers(json, device, kDeviceNumbers);
  json.require(device.products > 0, "products", kAboveZero);
  json.require(device.attention > 0, "attention", kAboveZero);
  json.require(device.fused_attention > 0, "fused_attention", kAboveZero);
}

void visit_errors_of_kind(JsonFields& json, TestedErrors& errors) {
  // Numbers of files are not negative, so `low` is the part below the prediction.
  double below = -errors.low;
  json.number("median", errors.median, kMaxRatio);
  json.number("low", below, 1);
  json.number("high", errors.high, kMaxRatio);
  json.count("runs", errors.runs, 1);
  errors.low = -below;
}

void visit_errors(JsonFields& json, std::map<Kernels, TestedErrors>& errors) {
  for (const Named<Kernels>& kind : kNames<Kernels>)
    if (json.has(kind.name, errors.contains(kind.value)))
      json.object(kind.name, errors[kind.value], visit_errors_of_kind);
}

void visit_matrix_flops(JsonFields& json, std::map<DataType, double>& flops) {
  for (const Named<DataType>& type : kNames<DataType>) {
    if (!json.has(type.name, flops.contains(type.value))) continue;
    json.number(type.name, flops[type.value], kMaxFlops);
    json.require(flops[type.value] > 0, type.name, kAboveZero);
  }
}

void visit_machine(JsonFields& json, MachineProfile& machine) {
  std::string format = kFormat;
  std::int64_t version = kVersion;
  json.field("format", format);
  json.require(format == kFormat, "format", fmt::format("expected '{}'", kFormat));
  json.field("version", version);
  json.require(version == kVersion, "version", fmt::format("expected {}", kVersion));
  json.field("name", machine.name);
  json.field("sources", machine.sources);
  json.field("cores", machine.cores);
  json.count("threads", machine.threads, 1);
  json.count("workers_per_node", machine.workers_per_node, 1);
  json.number("memory_bytes", machine.memory_bytes, kMaxBytes);
  if (json.has("kernels", true)) json.object("kernels", machine, visit_kernels);
  const bool has_device = json.has("device", machine.has_device());
  if (json.has("layers", !machine.layers.empty()) || !has_device) json.list("layers", machine.layers, visit_layer);
  json.require(has_device || !machine.layers.empty(), "layers", "expected at least one layer");
  json.object("point_to_point", machine.point_to_point, visit_links);
  json.object("all_reduce", machine.all_reduce, visit_links);
  if (json.has("message_copy", true)) json.object("message_copy", machine.message_copy, visit_link);
  if (json.has("node_message_copy", true)) json.object("node_message_copy", machine.node_message_copy, visit_link);
  if (json.has("contention", true)) json.object("contention", machine.contention, visit_contention);
  if (json.has("matrix_flops", true)) json.object("matrix_flops", machine.matrix_flops, visit_matrix_flops);
  visit_numbers(json, machine, kMachineNumbers);
  if (has_device) json.object("device", machine.device, visit_device);
  if (json.has("errors", !machine.errors.empty())) json.object("errors", machine.errors, visit_errors);
  if (json.has("reserved", machine.reserved.all() > 0)) json.object("reserved", machine.reserved, visit_reserved);
  if (json.has("op_sum", machine.op_sum != LinkTimes{})) json.object("op_sum", machine.op_sum, visit_link);
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
  MachineProfile machine;
  JsonFields::read(root, machine, visit_machine);
  if ((machine.score_traffic > 0 || machine.has_device()) && machine.memory_bandwidth == 0) {
    const JsonValue needs = machine.has_device() ? root.field("device") : root.field("kernels").field("score_traffic");
    needs.fail("needs memory_bandwidth, in bytes per second");
  }
  for (const DataType type : {DataType::Float32, DataType::BFloat16})
    if (machine.has_device() && !machine.matrix_flops.contains(type))
      root.field("device").fail(fmt::format("needs matrix_flops of {}", to_text(type)));
  return machine;
}

MachineProfile read_machine(const std::string& path) {
  return machine_from_json(read_whole(path), path == "-" ? "standard input" : path);
}

std::string to_json(MachineProfile machine) {
  auto json = JsonFields::written(machine, visit_machine);
  if (machine.host_bandwidth == 0) json.erase("host_bandwidth");
  return json_report(json);
}

void visit_times(JsonFields& json, std::vector<LayerTime>& times) {
  json.list("times", times, visit_time);
  json.require(!times.empty(), "times", "expected at least one micro-batch size");
  const auto found = std::ranges::adjacent_find(times, std::greater_equal<>(), &LayerTime::micro_batch_size);
  if (found == times.end()) return;
  json.require(false, "times",
               fmt::format("micro-batch size {} follows {}; expected ascending sizes",
                           std::next(found)->micro_batch_size, found->micro_batch_size));
}

void visit_link(JsonFields& json, LinkTimes& link) {
  json.number("alpha", link.alpha, kMaxSeconds);
  json.number("beta", link.beta, kMaxSeconds);
  if (json.has("burst", link.burst > 0)) json.number("burst", link.burst, kMaxBytes);
}

}  // namespace chimera

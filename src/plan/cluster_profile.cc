#include "plan/cluster_profile.h"

#include <algorithm>
#include <map>

#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"

namespace chimera {
namespace {

/// Returns the first entry with the means of these numbers over all.
template <class Struct, class Fields>
Struct mean_of(const std::vector<Struct>& all, const Fields& fields) {
  // Fields that are no numbers, such as names, are those of the first.
  Struct mean = all.front();
  for (const auto& field : fields) {
    double sum = 0;
    for (const Struct& each : all) sum += each.*field.value;
    mean.*field.value = sum / static_cast<double>(all.size());
  }
  return mean;
}

LinkTimes mean_link(const std::vector<MachineProfile>& machines, LinkTimes MachineProfile::*entry) {
  return mean_of(mapped(machines, entry), kLinkNumbers);
}

void require_equal(const std::vector<MachineProfile>& machines, std::int64_t MachineProfile::*entry, const char* name) {
  const MachineProfile& first = machines.front();
  for (const MachineProfile& machine : machines) {
    if (machine.*entry == first.*entry) continue;
    reject("profiles '{}' and '{}' differ in {}: {} and {}; a plan needs equal nodes", first.name, machine.name, name,
           first.*entry, machine.*entry);
  }
}

/// Profiles without split layers have no such times.
LinkTimes mean_op_sum(const std::vector<MachineProfile>& machines) {
  std::vector<LinkTimes> measured = mapped(machines, &MachineProfile::op_sum);
  std::erase(measured, LinkTimes{});
  return measured.empty() ? LinkTimes{} : mean_of(measured, kLinkNumbers);
}

/// A profile without a measurement between nodes does not pull its slowdown towards 0.
Contention mean_contention(const std::vector<MachineProfile>& machines) {
  Contention mean = mean_of(mapped(machines, &MachineProfile::contention), kContentionNumbers);
  mean.node_transfers = 0;
  for (const MachineProfile& machine : machines)
    if (machine.contention.node_transfers > 0) mean.node_transfers = machine.contention.node_transfers;
  return mean;
}

bool measure_the_same(const LayerTimes& a, const LayerTimes& b) {
  return a.kind == b.kind && a.model == b.model && a.sequence == b.sequence && a.dtype == b.dtype &&
         a.tensor_parallel == b.tensor_parallel;
}

/// Joins the measurements of one layer on all machines by micro-batch size.
LayerTimes unite_layer(LayerTimes layer, const std::vector<MachineProfile>& machines) {
  std::map<std::int64_t, std::vector<LayerTime>> by_size;
  for (const MachineProfile& machine : machines) {
    for (const LayerTimes& other : machine.layers) {
      if (!measure_the_same(layer, other)) continue;
      for (const LayerTime& time : other.times) by_size[time.micro_batch_size].push_back(time);
    }
  }
  layer.times.clear();
  for (const auto& [size, times] : by_size) {
    layer.times.push_back(mean_of(times, kLayerTimeNumbers));
    layer.times.back().spread = std::ranges::max(times, {}, &LayerTime::spread).spread;
  }
  return layer;
}

std::vector<LayerTimes> unite_layers(const std::vector<MachineProfile>& machines) {
  std::vector<LayerTimes> layers;
  for (const MachineProfile& machine : machines) {
    for (const LayerTimes& layer : machine.layers) {
      const auto same = [&](const LayerTimes& known) { return measure_the_same(known, layer); };
      if (std::ranges::none_of(layers, same)) layers.push_back(unite_layer(layer, machines));
    }
  }
  return layers;
}

LinkProfile merge_links(const std::vector<MachineProfile>& machines, LinkProfile MachineProfile::*entry) {
  // A profile whose links between nodes equal those within has not measured them.
  const std::vector<LinkProfile> profiles = mapped(machines, entry);
  LinkProfile links{mean_of(mapped(profiles, &LinkProfile::within_node), kLinkNumbers)};
  links.between_nodes = links.within_node;
  for (const LinkProfile& own : profiles)
    if (own.between_nodes != own.within_node) links.between_nodes = own.between_nodes;
  return links;
}

std::map<DataType, double> merge_matrix_flops(const std::vector<MachineProfile>& machines) {
  std::map<DataType, double> merged;
  // Only types that all machines have measured.
  for (const auto& [type, flops] : machines.front().matrix_flops) {
    const auto knows = [type = type](const MachineProfile& machine) { return machine.matrix_flops.contains(type); };
    if (!std::ranges::all_of(machines, knows)) continue;
    for (const MachineProfile& machine : machines) merged[type] += machine.matrix_flops.at(type);
    merged[type] /= static_cast<double>(machines.size());
  }
  return merged;
}

void visit_node_links(JsonFields& json, NodeLinks& links) {
  json.object("messages", links.messages, visit_link);
  json.object("sums", links.sums, visit_link);
  json.number("transfers", links.transfers, kMaxRatio);
  json.object("copies", links.copies, visit_link);
  json.number("step_overhead", links.step_overhead, kMaxSeconds);
  json.field("source", links.source);
}

}  // namespace

MachineProfile with_links_between(MachineProfile machine, const NodeLinks& links, std::int64_t workers_per_node) {
  machine.sources.push_back(links.source);
  machine.point_to_point.between_nodes = links.messages;
  machine.all_reduce.between_nodes = links.sums;
  machine.contention.node_transfers = links.transfers;
  machine.node_message_copy = links.copies;
  if (workers_per_node > 0)
    machine.workers_per_node = workers_per_node;
  else if (machine.cores > 0)
    machine.workers_per_node = std::max<std::int64_t>(1, machine.cores / machine.threads);
  // The ranks of a node synchronize first, then the nodes.
  machine.step_overhead = links.step_overhead + (machine.workers_per_node > 1 ? machine.step_overhead : 0);
  return machine;
}

std::string to_json(NodeLinks links) { return json_report(JsonFields::written(links, visit_node_links)); }

NodeLinks node_links_from_json(const std::string& text, const std::string& source) {
  const nlohmann::json json = parse_json(text, source);
  NodeLinks links;
  JsonFields::read(JsonValue(json, source), links, visit_node_links);
  return links;
}

MachineProfile merge_machines(const std::vector<MachineProfile>& machines) {
  if (machines.size() < 2) throw ConfigError("a single profile needs no merging; give two or more");
  require_equal(machines, &MachineProfile::cores, "cores");
  require_equal(machines, &MachineProfile::threads, "threads");
  require_equal(machines, &MachineProfile::workers_per_node, "workers_per_node");
  MachineProfile merged = mean_of(machines, kMachineNumbers);
  merged.host_bandwidth = machines.front().host_bandwidth;
  merged.sources.clear();
  for (const MachineProfile& machine : machines) {
    if (&machine != &machines.front()) merged.name += " + " + machine.name;
    for (const std::string& source : machine.sources)
      if (std::ranges::count(merged.sources, source) == 0) merged.sources.push_back(source);
    // A plan must fit on every node.
    merged.memory_bytes = std::min(merged.memory_bytes, machine.memory_bytes);
    merged.host_bandwidth = std::min(merged.host_bandwidth, machine.host_bandwidth);
  }
  merged.layers = unite_layers(machines);
  merged.point_to_point = merge_links(machines, &MachineProfile::point_to_point);
  merged.all_reduce = merge_links(machines, &MachineProfile::all_reduce);
  merged.op_sum = mean_op_sum(machines);
  merged.message_copy = mean_link(machines, &MachineProfile::message_copy);
  merged.node_message_copy = mean_link(machines, &MachineProfile::node_message_copy);
  merged.contention = mean_contention(machines);
  merged.matrix_flops = merge_matrix_flops(machines);
  merged.device = machines.front().device;
  merged.errors.clear();
  merged.expected_error = 0;  // no run was predicted with the merged profile
  return merged;
}

}  // namespace chimera

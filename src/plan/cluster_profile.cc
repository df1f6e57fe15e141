#include "plan/cluster_profile.h"

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"

namespace chimera {
namespace {

double mean_of(const std::vector<MachineProfile>& machines, double MachineProfile::*entry) {
  double sum = 0;
  for (const MachineProfile& machine : machines) sum += machine.*entry;
  return sum / static_cast<double>(machines.size());
}

void require_equal(const std::vector<MachineProfile>& machines, std::int64_t MachineProfile::*entry, const char* name) {
  const MachineProfile& first = machines.front();
  for (const MachineProfile& machine : machines) {
    if (machine.*entry == first.*entry) continue;
    throw ConfigError(fmt::format("profiles '{}' and '{}' differ in {}: {} and {}; a plan needs equal nodes",
                                  first.name, machine.name, name, first.*entry, machine.*entry));
  }
}

LinkTimes mean_of(const std::vector<MachineProfile>& machines, LinkTimes MachineProfile::*entry) {
  LinkTimes mean;
  const auto count = static_cast<double>(machines.size());
  for (const MachineProfile& machine : machines) {
    mean.alpha += (machine.*entry).alpha / count;
    mean.beta += (machine.*entry).beta / count;
    mean.burst += (machine.*entry).burst / count;
  }
  return mean;
}

Contention mean_contention(const std::vector<MachineProfile>& machines) {
  Contention mean;
  const auto count = static_cast<double>(machines.size());
  for (const MachineProfile& machine : machines) {
    mean.ops_by_sums += machine.contention.ops_by_sums / count;
    mean.sums_by_ops += machine.contention.sums_by_ops / count;
    mean.transfers += machine.contention.transfers / count;
    mean.sums_overlap += machine.contention.sums_overlap / count;
    mean.ops_by_receives += machine.contention.ops_by_receives / count;
    mean.idle_gain += machine.contention.idle_gain / count;
    if (machine.contention.node_transfers > 0) mean.node_transfers = machine.contention.node_transfers;
  }
  return mean;
}

LayerTime mean_of(const std::vector<LayerTime>& times) {
  LayerTime mean{times.front().micro_batch_size};
  const auto count = static_cast<double>(times.size());
  for (const LayerTime& time : times) {
    mean.forward += time.forward / count;
    mean.input_gradient += time.input_gradient / count;
    mean.weight_gradient += time.weight_gradient / count;
    mean.recompute += time.recompute / count;
    mean.spread = std::max(mean.spread, time.spread);
  }
  return mean;
}

bool measure_the_same(const LayerTimes& a, const LayerTimes& b) {
  return a.kind == b.kind && a.model == b.model && a.sequence == b.sequence && a.dtype == b.dtype;
}

LayerTimes unite_layer(LayerTimes layer, const std::vector<MachineProfile>& machines) {
  std::vector<LayerTime> all;
  for (const MachineProfile& machine : machines) {
    for (const LayerTimes& other : machine.layers) {
      if (measure_the_same(layer, other)) all.insert(all.end(), other.times.begin(), other.times.end());
    }
  }
  std::ranges::stable_sort(all, {}, &LayerTime::micro_batch_size);
  layer.times.clear();
  for (auto first = all.begin(); first != all.end();) {
    const auto last = std::find_if(first, all.end(),
                                   [&](const LayerTime& t) { return t.micro_batch_size > first->micro_batch_size; });
    layer.times.push_back(mean_of(std::vector<LayerTime>(first, last)));
    first = last;
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
  LinkProfile links;
  const auto count = static_cast<double>(machines.size());
  for (const MachineProfile& machine : machines) {
    links.within_node.alpha += (machine.*entry).within_node.alpha / count;
    links.within_node.beta += (machine.*entry).within_node.beta / count;
  }
  links.between_nodes = links.within_node;
  for (const MachineProfile& machine : machines) {
    const LinkProfile& own = machine.*entry;
    if (own.between_nodes != own.within_node) links.between_nodes = own.between_nodes;
  }
  return links;
}

std::map<DataType, double> merge_matrix_flops(const std::vector<MachineProfile>& machines) {
  std::map<DataType, double> merged;
  for (const auto& [type, flops] : machines.front().matrix_flops) {
    double sum = 0;
    std::size_t known = 0;
    for (const MachineProfile& machine : machines) {
      const auto own = machine.matrix_flops.find(type);
      if (own == machine.matrix_flops.end()) continue;
      sum += own->second;
      ++known;
    }
    if (known == machines.size()) merged[type] = sum / static_cast<double>(known);
  }
  return merged;
}

}  // namespace

MachineProfile with_links_between(MachineProfile machine, const NodeLinks& links, std::int64_t workers_per_node) {
  machine.sources.push_back(links.source);
  machine.point_to_point.between_nodes = links.messages;
  machine.all_reduce.between_nodes = links.sums;
  machine.contention.node_transfers = links.transfers;
  machine.node_message_copy = links.copies;
  if (workers_per_node > 0) {
    machine.workers_per_node = workers_per_node;
  } else if (machine.cores > 0) {
    machine.workers_per_node = std::max<std::int64_t>(1, machine.cores / machine.threads);
  }
  // The ranks of a node synchronize first, then the nodes.
  machine.step_overhead = links.step_overhead + (machine.workers_per_node > 1 ? machine.step_overhead : 0);
  return machine;
}

std::string to_json(const NodeLinks& links) {
  const nlohmann::ordered_json json = {{"messages", link_json(links.messages)}, {"sums", link_json(links.sums)},
                                       {"transfers", links.transfers},          {"copies", link_json(links.copies)},
                                       {"step_overhead", links.step_overhead},  {"source", links.source}};
  return json_text(json, 2) + "\n";
}

NodeLinks node_links_from_json(const std::string& text, const std::string& source) {
  const nlohmann::json json = parse_json(text, source);
  const JsonValue root(json, source);
  root.expect_object({"messages", "sums", "transfers", "copies", "step_overhead", "source"});
  return {.messages = read_link(root.field("messages")),
          .sums = read_link(root.field("sums")),
          .transfers = root.number("transfers", kMostRatio),
          .copies = read_link(root.field("copies")),
          .step_overhead = root.number("step_overhead", kMostSeconds),
          .source = root.text("source")};
}

MachineProfile merge_machines(const std::vector<MachineProfile>& machines) {
  if (machines.size() < 2) throw ConfigError("a single profile needs no merging; give two or more");
  require_equal(machines, &MachineProfile::cores, "cores");
  require_equal(machines, &MachineProfile::threads, "threads");
  require_equal(machines, &MachineProfile::workers_per_node, "workers_per_node");
  MachineProfile merged = machines.front();
  merged.sources.clear();
  for (const MachineProfile& machine : machines) {
    if (&machine != &machines.front()) merged.name += " + " + machine.name;
    for (const std::string& source : machine.sources) {
      if (std::ranges::count(merged.sources, source) == 0) merged.sources.push_back(source);
    }
    merged.memory_bytes = std::min(merged.memory_bytes, machine.memory_bytes);
    merged.host_bandwidth = std::min(merged.host_bandwidth, machine.host_bandwidth);
  }
  merged.layers = unite_layers(machines);
  merged.point_to_point = merge_links(machines, &MachineProfile::point_to_point);
  merged.all_reduce = merge_links(machines, &MachineProfile::all_reduce);
  merged.busy_delay = mean_of(machines, &MachineProfile::busy_delay);
  merged.core_imbalance = mean_of(machines, &MachineProfile::core_imbalance);
  merged.core_sharing = mean_of(machines, &MachineProfile::core_sharing);
  merged.memory_bandwidth = mean_of(machines, &MachineProfile::memory_bandwidth);
  merged.message_copy = mean_of(machines, &MachineProfile::message_copy);
  merged.node_message_copy = mean_of(machines, &MachineProfile::node_message_copy);
  merged.contention = mean_contention(machines);
  merged.sum_rank_loss = mean_of(machines, &MachineProfile::sum_rank_loss);
  merged.scale_loss = mean_of(machines, &MachineProfile::scale_loss);
  merged.optimizer_seconds = mean_of(machines, &MachineProfile::optimizer_seconds);
  merged.matrix_flops = merge_matrix_flops(machines);
  merged.op_overhead = mean_of(machines, &MachineProfile::op_overhead);
  merged.step_overhead = mean_of(machines, &MachineProfile::step_overhead);
  merged.expected_error = 0;  // no run was predicted with the merged profile
  return merged;
}

}  // namespace chimera

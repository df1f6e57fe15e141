#include "plan/merge_machines.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

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
    throw ConfigError(fmt::format("profiles '{}' and '{}' differ in {}: {} and {}; a plan wants nodes that are alike",
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

/// `layer` with the times that all machines have of it.
LayerTimes united(LayerTimes layer, const std::vector<MachineProfile>& machines) {
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

std::vector<LayerTimes> united_layers(const std::vector<MachineProfile>& machines) {
  std::vector<LayerTimes> layers;
  for (const MachineProfile& machine : machines) {
    for (const LayerTimes& layer : machine.layers) {
      const auto same = [&](const LayerTimes& known) { return measure_the_same(known, layer); };
      if (std::ranges::none_of(layers, same)) layers.push_back(united(layer, machines));
    }
  }
  return layers;
}

LinkProfile merged_links(const std::vector<MachineProfile>& machines, LinkProfile MachineProfile::*entry) {
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

/// Of the types that all of them know, the mean.
std::map<DataType, double> merged_matrix_flops(const std::vector<MachineProfile>& machines) {
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

MachineProfile merge_machines(const std::vector<MachineProfile>& machines) {
  if (machines.size() < 2) throw ConfigError("one profile alone needs no merging; give two or more");
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
  }
  merged.layers = united_layers(machines);
  merged.point_to_point = merged_links(machines, &MachineProfile::point_to_point);
  merged.all_reduce = merged_links(machines, &MachineProfile::all_reduce);
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
  merged.matrix_flops = merged_matrix_flops(machines);
  merged.op_overhead = mean_of(machines, &MachineProfile::op_overhead);
  merged.step_overhead = mean_of(machines, &MachineProfile::step_overhead);
  return merged;
}

}  // namespace chimera

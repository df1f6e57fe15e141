#include "profile/speed_gauge.h"

#include "bench/statistics.h"

namespace chimera {

SpeedGauge::SpeedGauge(Lockstep& ranks, const std::vector<GaugedBlocks>& blocks) : ranks_(ranks) {
  for (const GaugedBlocks& each : blocks) {
    BenchedLayers layers;
    layers.model = find_model(each.model);
    layers.sequence = each.sequence;
    items_.push_back({StageBench(layers), layers.model, each.micro_batch_size, each.sequence});
  }
}

double SpeedGauge::seconds() {
  ranks_.meet();
  const double start = monotonic_seconds();
  if (ranks_.computes()) {
    for (Item& item : items_) (void)item.bench.run(item.micro_batch_size, /*threads=*/1);
  }
  double seconds = monotonic_seconds() - start;
  ranks_.average({&seconds, 1});
  return seconds;
}

double SpeedGauge::seconds_on(const MachineProfile& machine) const {
  double seconds = 0;
  for (const Item& item : items_) {
    const LayerTime time = layer_time(machine, item.model, LayerKind::Block,
                                      {.micro_batch_size = item.micro_batch_size, .sequence = item.sequence});
    const double pass = time.forward + time.input_gradient + time.weight_gradient;
    seconds += static_cast<double>(item.bench.layers()) * (2 * pass + time.recompute);  // and once recomputed
  }
  return seconds;
}

double median_gauge(const std::vector<std::vector<GaugedTime>>& times) {
  std::vector<double> gauges;
  for (const auto& run : times) {
    for (const GaugedTime& time : run) gauges.push_back(time.gauge);
  }
  return spread_of(gauges).median;
}

MachineProfile on_slower_processor(MachineProfile machine, double factor) {
  for (LayerTimes& layer : machine.layers) {
    for (LayerTime& time : layer.times) {
      for (double* part : {&time.forward, &time.input_gradient, &time.weight_gradient, &time.recompute})
        *part *= factor;
    }
  }
  for (LinkTimes* link :
       {&machine.point_to_point.within_node, &machine.point_to_point.between_nodes, &machine.all_reduce.within_node,
        &machine.all_reduce.between_nodes, &machine.message_copy, &machine.node_message_copy}) {
    link->alpha *= factor;
    link->beta *= factor;
  }
  for (double* seconds : {&machine.optimizer_seconds, &machine.op_overhead, &machine.step_overhead}) *seconds *= factor;
  return machine;
}

std::vector<std::vector<double>> at_median_speed(const std::vector<std::vector<GaugedTime>>& times) {
  const double usual = median_gauge(times);
  std::vector<std::vector<double>> scaled;
  for (const auto& run : times) {
    auto& seconds = scaled.emplace_back();
    for (const GaugedTime& time : run) seconds.push_back(time.seconds * usual / time.gauge);
  }
  return scaled;
}

}  // namespace chimera

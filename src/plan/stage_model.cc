#include "plan/stage_model.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "core/error.h"
#include "model_config/parameters.h"
#include "passes/lower.h"
#include "plan/machine.h"
#include "plan/own_layers.h"
#include "plan/tensor_parallel.h"
#include "schedule/rank_layout.h"

namespace chimera {
namespace {

constexpr double real(std::int64_t number) { return static_cast<double>(number); }

LayerFootprint work_of(const MachineProfile& machine, const ModelConfig& config, LayerKind kind,
                       std::int64_t sequence) {
  LayerFootprint work = layer_footprint(config, kind, {.micro_batch_size = 1, .sequence = sequence});
  if (kind != LayerKind::Head || !machine.whole_head) return work;
  const double width = real(config.hidden);
  const bool transforms = config.family == Family::Bert;  // tokens before the logits, and the first token's sentence
  work.forward_flops = 2 * real(sequence) * width * (real(config.vocabulary) + (transforms ? width : 0)) +
                       (transforms ? 2 * width * (width + 2) : 0);
  work.input_gradient_flops = work.weight_gradient_flops = work.forward_flops;
  return work;
}

bool equal_sizes(const ModelConfig& a, const ModelConfig& b, LayerKind kind) {
  if (a.family != b.family || a.hidden != b.hidden) return false;
  switch (kind) {
    case LayerKind::Embedding: return a.vocabulary == b.vocabulary && a.positions == b.positions;
    case LayerKind::Block:
      return a.heads == b.heads && a.feed_forward == b.feed_forward && key_value_heads_of(a) == key_value_heads_of(b) &&
             head_size_of(a) == head_size_of(b) && a.attention_bias == b.attention_bias &&
             a.feed_forward_bias == b.feed_forward_bias && a.query_key_norm == b.query_key_norm;
    case LayerKind::Head: return a.vocabulary == b.vocabulary;
  }
  return false;
}

double hidden_states(const ModelConfig& model, std::int64_t sequence) { return real(model.hidden) * real(sequence); }

/// Returns the absolute logarithm of the work ratio, plus penalties for other differences.
double distance(const MachineProfile& machine, const LayerTimes& layer, const ModelConfig& model,
                const Workload& workload) {
  constexpr double kOtherSequence = 0.01;  // breaks ties between equal work
  constexpr double kOtherSizes = 0.02;
  constexpr double kOtherFamily = 1;
  constexpr double kOtherType = 3;
  const auto per_token = [&](const ModelConfig& config, std::int64_t sequence) {
    return work_of(machine, config, layer.kind, sequence).forward_flops / real(sequence);
  };
  const double measured = per_token(layer.model, layer.sequence);
  const double asked = per_token(model, workload.sequence);
  const double ratio = measured > 0 && asked > 0 ? asked / measured : real(model.hidden) / real(layer.model.hidden);
  double sum = std::abs(std::log(ratio));
  if (layer.sequence != workload.sequence) {
    sum += kOtherSequence * (1 + std::abs(std::log(real(workload.sequence) / real(layer.sequence))));
  }
  if (!equal_sizes(layer.model, model, layer.kind)) sum += kOtherSizes;
  if (layer.model.family != model.family) sum += kOtherFamily;
  if (bytes_of(layer.dtype) != workload.compute_bytes) sum += kOtherType;
  return sum;
}

const LayerTimes& nearest_layer(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                const Workload& workload) {
  const LayerTimes* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const LayerTimes& layer : machine.layers) {
    if (layer.kind != kind) continue;
    if (const double far = distance(machine, layer, model, workload); far < least) {
      least = far;
      best = &layer;
    }
  }
  if (best == nullptr) {
    throw ConfigError(fmt::format("machine profile '{}' has no layer of kind {}; `chimera profile` measures all three",
                                  machine.name, to_text(kind)));
  }
  return *best;
}

/// Limits the extrapolation: at least proportional below `a`, at least b's value above `b`.
double on_line(double size, const LayerTime& a, const LayerTime& b, double LayerTime::*part) {
  const auto low = real(a.micro_batch_size);
  const auto high = real(b.micro_batch_size);
  const double value = a.*part + (b.*part - a.*part) * (size - low) / (high - low);
  if (size < low) return std::max(value, a.*part * size / low);
  return size > high ? std::max(value, b.*part) : value;
}

double at_size(const std::vector<LayerTime>& times, double size, double LayerTime::*part) {
  if (times.size() == 1) return times.front().*part * size / real(times.front().micro_batch_size);
  auto upper = std::ranges::find_if(times, [&](const LayerTime& t) { return real(t.micro_batch_size) >= size; });
  if (upper == times.end()) --upper;
  if (upper == times.begin()) ++upper;
  return on_line(size, *(upper - 1), *upper, part);
}

double spread_at(const std::vector<LayerTime>& times, double size) {
  return std::ranges::min_element(times, {},
                                  [&](const LayerTime& t) { return std::abs(real(t.micro_batch_size) - size); })
      ->spread;
}

double attention_seconds(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                         std::int64_t sequence) {
  if (kind != LayerKind::Block || machine.score_traffic == 0) return 0;
  return machine.score_traffic * real(model.heads) * real(sequence) * real(sequence) / machine.memory_bandwidth;
}

}  // namespace

LayerTime time_at(const std::vector<LayerTime>& times, double size) {
  const auto part = [&](double LayerTime::*each) { return at_size(times, size, each); };
  return {static_cast<std::int64_t>(std::llround(size)),
          part(&LayerTime::forward),
          part(&LayerTime::input_gradient),
          part(&LayerTime::weight_gradient),
          part(&LayerTime::recompute),
          spread_at(times, size)};
}

LayerTime layer_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                     const Workload& workload) {
  const LayerTimes& layer = nearest_layer(machine, model, kind, workload);
  const double slices = real(workload.slices);
  // Same number of tokens, because some costs depend only on it
  const double sequences = real(workload.micro_batch_size) * real(workload.sequence) / real(layer.sequence) / slices;
  const LayerFootprint asked = work_of(machine, model, kind, workload.sequence);
  const LayerFootprint measured = work_of(machine, layer.model, kind, layer.sequence);
  const double wider = real(workload.compute_bytes) / real(bytes_of(layer.dtype));
  const double states = hidden_states(model, workload.sequence) / hidden_states(layer.model, layer.sequence);
  const double traffic_measured = attention_seconds(machine, layer.model, kind, layer.sequence);
  const double traffic_asked = attention_seconds(machine, model, kind, workload.sequence);
  // `moves` is 1 if the op accesses attention scores, else 0.
  const auto time = [&](double LayerTime::*part, double LayerFootprint::*work, double moves) {
    const double ratio = measured.*work > 0 && asked.*work > 0 ? asked.*work / measured.*work : states;
    const double per_token = ratio * real(layer.sequence) / real(workload.sequence);
    const double in_all = slices * at_size(layer.times, sequences, part);
    const double in_products = std::max(0.0, in_all - moves * traffic_measured * sequences * slices);
    const double seconds = (in_products * per_token + moves * traffic_asked * real(workload.micro_batch_size)) * wider;
    return kind == LayerKind::Block ? std::max(seconds, slices * machine.block_launch) : seconds;
  };
  LayerTime result = {workload.micro_batch_size,
                      time(&LayerTime::forward, &LayerFootprint::forward_flops, 1),
                      time(&LayerTime::input_gradient, &LayerFootprint::input_gradient_flops, 1),
                      time(&LayerTime::weight_gradient, &LayerFootprint::weight_gradient_flops, 0),
                      time(&LayerTime::recompute, &LayerFootprint::forward_flops, 1),
                      spread_at(layer.times, sequences)};
  if (workload.recompute_attention && kind == LayerKind::Block) {
    const double traffic = std::min(result.recompute, traffic_asked * real(workload.micro_batch_size) * wider);
    const LayerTensors tensors(model, {.micro_batch_size = 1, .sequence = workload.sequence});
    const double share = tensors.flops_of_attention_layer() / tensors.flops_of_block();
    result.input_gradient += traffic + share * (result.recompute - traffic);
  }
  return result;
}

double attention_time_share(const PlanProblem& problem, std::int64_t micro_batch_size) {
  const MachineProfile& machine = problem.machine;
  const ModelConfig& model = problem.model;
  Workload workload = problem.workload;
  workload.micro_batch_size = micro_batch_size;
  const auto seconds = [](const LayerTime& time) { return time.forward + time.input_gradient + time.weight_gradient; };
  const LayerTime block = layer_time(machine, model, LayerKind::Block, workload);
  const LayerFootprint work = layer_footprint(model, LayerKind::Block, workload);
  const LayerTimes& measured = nearest_layer(machine, model, LayerKind::Block, workload);
  const double flops = LayerTensors(model, workload).flops_of_attention();
  const double traffic = attention_seconds(machine, model, LayerKind::Block, workload.sequence) *
                         real(micro_batch_size) * real(workload.compute_bytes) / real(bytes_of(measured.dtype));
  const auto of_attention = [&](double all_seconds, double share_of_flops) {
    const double moving = std::min(traffic, all_seconds);
    return moving + (all_seconds - moving) * share_of_flops;
  };
  const double again = workload.recompute_attention ? 3 : 2;
  const double attention = of_attention(block.forward, flops / work.forward_flops) +
                           of_attention(block.input_gradient, again * flops / work.input_gradient_flops);
  const double others = seconds(layer_time(machine, model, LayerKind::Embedding, workload)) +
                        seconds(layer_time(machine, model, LayerKind::Head, workload));
  const double all = real(model.layers) * seconds(block) + others;
  return all > 0 ? real(model.layers) * attention / all : 0;
}

std::vector<std::int64_t> planned_slices(const PlanProblem& problem, std::int64_t micro_batch_size,
                                         std::int64_t slices) {
  return balanced_slices(slices, problem.workload.sequence, attention_time_share(problem, micro_batch_size));
}

namespace {

constexpr double kLeast = std::numeric_limits<double>::min();  // not 0, which means no recomputation

/// Costs per kind of layer, or per layer of a user's own model.
struct LayerCosts {
  std::array<LayerTime, kLayerKinds> kinds;
  std::vector<LayerTime> own;

  [[nodiscard]] double of(const StageLayers& stage, double LayerTime::*part) const {
    double seconds = static_cast<double>(stage.end_layer - stage.first_layer) * kinds[1].*part;
    if (stage.embedding) seconds += kinds[0].*part;
    if (stage.head) seconds += kinds[2].*part;
    if (own.empty()) return seconds;
    for (std::int64_t i = stage.first_layer; i < stage.end_layer; ++i)
      seconds += own[static_cast<std::size_t>(i)].*part;
    return seconds;
  }
};

class Builder {
 public:
  Builder(const PlanProblem& problem, const Candidate& candidate, const Schedule& schedule)
      : problem_(problem),
        machine_(problem.machine),
        candidate_(candidate),
        schedule_(schedule),
        workload_(problem.workload),
        ranks_{static_cast<std::int64_t>(schedule.workers.size()), candidate.data_parallel, candidate.replica_layout} {
    const double size = static_cast<double>(candidate.micro_batch_size) * schedule.micro_batch_scale;
    workload_.micro_batch_size = std::llround(size);
    workload_.slices = schedule.slices;
    near_ = near_boundaries();
    for (const OwnLayer& layer : problem.layers)
      layers_.own.push_back(time_at(layer.times, static_cast<double>(workload_.micro_batch_size)));
    if (!is_own()) {
      for (int kind = 0; kind < kLayerKinds; ++kind) set_layer(static_cast<LayerKind>(kind));
    }
  }

  StageModel run(const std::vector<StageLayers>& partition) {
    Workload whole = problem_.workload;
    whole.micro_batch_size = candidate_.micro_batch_size;
    whole.dropout = whole.dropout && machine_.score_bytes == 0;
    model_ = is_own() ? own_bytes(problem_.layers, partition, candidate_.micro_batch_size, workload_)
                      : stage_bytes(problem_.model, partition, schedule_, whole);
    if (machine_.cores == 0) model_.costs.buffers.receives_ahead = kReceivesAheadOnGpus;
    for (std::size_t s = 0; s < partition.size(); ++s) {
      add_times(partition[s]);
      split_stage(s, partition[s]);
      if (is_own()) continue;
      scale_activations(s, static_cast<double>(partition[s].end_layer - partition[s].first_layer));
      if (partition[s].head && machine_.whole_head) keep_all_logits(s);
    }
    if (!candidate_.recompute.empty()) add_recomputation();
    if (!candidate_.offload.empty()) add_offload();
    add_links();
    add_sums();
    if (ranks_.num_ranks() > places_per_node()) {
      add_nodes();
      if (model_.costs.all_reduce) add_computing_share(*model_.costs.all_reduce);
    }
    add_updates();
    if (schedule_.slices > 1) add_slices();
    model_.costs.all_reduce_placement = problem_.sync;
    model_.costs.blocking_sends = problem_.blocking_sends;
    model_.step_seconds = machine_.step_overhead;
    return std::move(model_);
  }

 private:
  [[nodiscard]] bool is_own() const { return !problem_.layers.empty(); }

  void add_slices() {
    const std::int64_t size = candidate_.micro_batch_size;
    model_.costs.slices = {attention_time_share(problem_, size),
                           as_fractions(planned_slices(problem_, size, schedule_.slices))};
  }

  void set_layer(LayerKind kind) {
    const std::int64_t count = candidate_.tensor_parallel;
    const auto index = static_cast<std::size_t>(kind);
    layers_.kinds[index] = split_layer_time(machine_, problem_.model, kind, workload_, count);
    sums_.kinds[index] = tensor_sums(machine_, problem_.model, kind, workload_, count);
    held_[index] = held_parameters(problem_.model, kind, count);
  }

  void split_stage(std::size_t s, const StageLayers& stage) {
    if (candidate_.tensor_parallel == 1) return;
    StageFootprint& footprint = model_.footprints[s];
    const std::int64_t blocks = stage.end_layer - stage.first_layer;
    std::int64_t held = blocks * held_[1] + (stage.embedding ? held_[0] : 0) + (stage.head ? held_[2] : 0);
    if (problem_.model.tied && stage.head && !stage.embedding) held += tied_matrix();
    const double share = static_cast<double>(held) / static_cast<double>(footprint.parameters);
    footprint.parameters = held;
    StageMemory& memory = model_.costs.memory[s];
    for (double* bytes : {&memory.weights, &memory.gradients, &memory.optimizer}) *bytes *= share;
    memory.keys_and_values /= static_cast<double>(candidate_.tensor_parallel);
    const double kept = held_activations(candidate_.tensor_parallel);
    memory.activations = memory.boundary + kept * (memory.activations - memory.boundary);
    if (memory.deferred) memory.deferred = *memory.deferred * kept;
    for (double* bytes : working_sets(footprint)) *bytes *= kept;
  }

  static std::array<double*, 4> working_sets(StageFootprint& footprint) {
    return {&footprint.forward_working_set, &footprint.backward_working_set, &footprint.input_gradient_working_set,
            &footprint.weight_gradient_working_set};
  }

  [[nodiscard]] std::int64_t tied_matrix() const {
    const std::int64_t count = candidate_.tensor_parallel;
    return (tied_parameter(problem_.model).count() + count - 1) / count;
  }

  [[nodiscard]] std::int64_t places_per_node() const {
    return std::max<std::int64_t>(1, machine_.workers_per_node / candidate_.tensor_parallel);
  }

  [[nodiscard]] double full(double of_micro_batch) const { return of_micro_batch / schedule_.micro_batch_scale; }

  [[nodiscard]] double slices() const { return real(schedule_.slices); }

  /// Workers that share cores even out core differences.
  [[nodiscard]] double slowest_core() const {
    const double slowest = problem_.workers > 1 && !shares_cores(problem_) ? 1 + machine_.core_imbalance : 1;
    return slowest * (1 + machine_.scale_loss * std::log2(static_cast<double>(problem_.workers)));
  }

  void add_times(const StageLayers& stage) {
    LayerTime& waits = model_.tensor_sums.emplace_back();
    const auto sum = [&](double LayerTime::*part) {
      waits.*part = full(sums_.of(stage, part));
      return full(layers_.of(stage, part)) * slowest_core() + waits.*part;
    };
    const double more = full(machine_.op_overhead) * slices();
    const double forward = sum(&LayerTime::forward);
    const double input = sum(&LayerTime::input_gradient);
    const double weight = sum(&LayerTime::weight_gradient);
    model_.costs.stages.push_back({forward + more, input + weight + more, input + more, weight + more});
    recomputation_.push_back(sum(&LayerTime::recompute) + more);
  }

  void scale_activations(std::size_t stage, double blocks) {
    const double scale = machine_.activation_scale;
    const auto length = static_cast<double>(workload_.sequence);
    const double pairs =
        static_cast<double>(problem_.model.heads) / static_cast<double>(candidate_.tensor_parallel) * length * length;
    // With recomputed attention, only one block holds its scores at a time.
    const double holders = workload_.recompute_attention ? std::min(blocks, 1.0) : blocks;
    const double scores =
        full(static_cast<double>(workload_.micro_batch_size) * pairs * machine_.score_bytes * holders);
    StageMemory& memory = model_.costs.memory[stage];
    memory.activations = memory.boundary + scale * (memory.activations - memory.boundary + scores);
    if (memory.deferred) memory.deferred = *memory.deferred * scale;
    StageFootprint& footprint = model_.footprints[stage];
    for (double* bytes : working_sets(footprint)) *bytes *= scale;
  }

  /// Replaces the head's memory: log-probabilities of all tokens until the backward, and a second tensor of this size
  /// in both passes.
  void keep_all_logits(std::size_t stage) {
    const bool bert = problem_.model.family == Family::Bert;
    const double tokens = real(workload_.micro_batch_size * workload_.sequence);
    const double states = 4 * tokens * real(problem_.model.hidden);
    const double logits = 4 * tokens * real(problem_.model.vocabulary);
    const double norms = 8 * tokens + states * (bert ? 3 : 1);  // BERT's transform has two more layers
    const double freed = bert ? states : 0;                     // the last block's output
    const double ours = layer_footprint(problem_.model, LayerKind::Head, workload_).activations - freed;
    const double scale = machine_.activation_scale * held_activations(candidate_.tensor_parallel);
    model_.costs.memory[stage].activations += full(scale * (norms + logits - ours));
    StageFootprint& footprint = model_.footprints[stage];
    const double at_once = scale * logits / slices();
    footprint.forward_working_set = std::max(footprint.forward_working_set, at_once);
    footprint.backward_working_set = std::max(footprint.backward_working_set, 2 * at_once);
  }

  void add_recomputation() {
    model_.costs.recompute.assign(model_.costs.stages.size(), 0);
    for (const StageId stage : candidate_.recompute)
      model_.costs.recompute[stage.index()] = std::max(recomputation_[stage.index()], kLeast);
  }

  void add_offload() {
    OffloadCosts costs{.beta = 1 / (machine_.host_bandwidth > 0 ? machine_.host_bandwidth : kHostBandwidth),
                       .bytes = offloadable_bytes(model_, schedule_.micro_batch_scale, candidate_.recompute)};
    for (std::size_t s = 0; s < costs.bytes.size(); ++s) {
      if (!candidate_.offload.contains(StageId(static_cast<std::int64_t>(s)))) costs.bytes[s] = 0;
    }
    model_.costs.offload = std::move(costs);
  }

  [[nodiscard]] bool messages_leave_nodes() const { return std::ranges::find(near_, false) != near_.end(); }

  [[nodiscard]] const LinkTimes& link() const {
    const LinkProfile& links = machine_.point_to_point;
    return messages_leave_nodes() ? links.between_nodes : links.within_node;
  }

  /// Without a free core for sending and receiving, messages delay ops.
  [[nodiscard]] bool messages_take_cores() const {
    const std::int64_t workers = std::min(problem_.workers, machine_.workers_per_node);
    return machine_.cores > 0 && 2 * workers * machine_.threads > machine_.cores;
  }

  /// Returns the compute time at each end of a message. Assumes half the message time if it is not measured and
  /// messages take cores from ops.
  [[nodiscard]] LinkTimes copy(bool is_near) const {
    const bool has_own = !is_near && machine_.node_message_copy != LinkTimes{};
    const LinkTimes& measured = has_own ? machine_.node_message_copy : machine_.message_copy;
    if (machine_.cores > 0 && !messages_take_cores()) return {};
    if (measured != LinkTimes{} || machine_.cores == 0) return measured;
    const LinkTimes& near = machine_.point_to_point.within_node;
    return is_near ? LinkTimes{near.alpha / 2, near.beta / 2} : LinkTimes{};
  }

  [[nodiscard]] bool is_near(std::size_t boundary) const {
    for (const auto& row : schedule_.placement.worker_of) {
      for (std::int64_t group = 0; group < candidate_.data_parallel; ++group) {
        const GroupId id(group);
        if (node_of(ranks_.rank({id, row[boundary]})) != node_of(ranks_.rank({id, row[boundary + 1]}))) return false;
      }
    }
    return true;
  }

  [[nodiscard]] std::int64_t node_of(RankId rank) const { return rank.value() / places_per_node(); }

  [[nodiscard]] std::vector<bool> near_boundaries() const {
    std::vector<bool> near(static_cast<std::size_t>(schedule_.stages - 1), true);
    if (ranks_.num_ranks() <= places_per_node()) return near;
    for (std::size_t boundary = 0; boundary < near.size(); ++boundary) near[boundary] = is_near(boundary);
    return near;
  }

  void take_near_links(LinkCosts& costs) const {
    std::vector<double> seconds = costs.times();
    bool any = false;
    for (std::size_t boundary = 0; boundary < seconds.size(); ++boundary) {
      if (!near_[boundary]) continue;
      seconds[boundary] = machine_.point_to_point.within_node.beta * costs.bytes[boundary];
      any = true;
    }
    if (any) costs.seconds = seconds;
  }

  void add_bursts(LinkCosts& costs) const {
    for (const bool near : near_) costs.bursts.push_back(near ? 0 : link().beta * link().burst);
  }

  void add_links() {
    const LinkTimes at_ends = copy(!messages_leave_nodes());
    LinkCosts costs;
    costs.alpha = link().alpha;
    costs.beta = link().beta;
    if (machine_.cores > 0) {  // measured message times include the work at both ends
      costs.alpha = std::max(0.0, costs.alpha - 2 * at_ends.alpha);
      costs.beta = std::max(0.0, costs.beta - 2 * at_ends.beta);
    }
    if (shares_cores(problem_)) costs.alpha += machine_.busy_delay;
    for (std::size_t s = 1; s < model_.costs.memory.size(); ++s) {
      const LinkTimes taken = copy(near_[s - 1]);
      costs.bytes.push_back(model_.costs.memory[s].boundary);
      costs.copies.push_back(full(taken.alpha) * slices() + taken.beta * costs.bytes.back());
    }
    if (std::ranges::count(costs.copies, 0) == std::ssize(costs.copies)) costs.copies.clear();
    if (messages_leave_nodes()) take_near_links(costs);
    if (link().burst > 0) add_bursts(costs);
    model_.costs.links = costs;
  }

  /// Returns the ranks per node if it is equal on all nodes, else 1.
  [[nodiscard]] std::int64_t ranks_on_each_node(const std::vector<RankId>& ranks) const {
    std::map<std::int64_t, std::int64_t> counts;
    for (const RankId rank : ranks) ++counts[node_of(rank)];
    const std::int64_t first = counts.begin()->second;
    return std::ranges::all_of(counts, [&](const auto& node) { return node.second == first; }) ? first : 1;
  }

  /// Share of an all-reduce that sums gradients: shards of the optimizer need only its reduce-scatter, and after the
  /// update as much time for an all-gather.
  [[nodiscard]] double share_of_all_reduce() const { return problem_.shard_optimizer ? 0.5 : 1; }

  [[nodiscard]] double sum_seconds(const std::vector<RankId>& ranks, double bytes) const {
    return share_of_all_reduce() * all_reduce_seconds(ranks, bytes);
  }

  /// Processes on several nodes all-reduce in two levels (GlooTransport), devices in a ring for each rank of a node.
  [[nodiscard]] double all_reduce_seconds(const std::vector<RankId>& ranks, double bytes) const {
    const auto& [within, between] = machine_.all_reduce;
    const auto count = static_cast<std::int64_t>(ranks.size());
    if (!is_over_nodes(ranks)) return chimera::sum_seconds(machine_, within, count, bytes);
    const std::int64_t near = ranks_on_each_node(ranks);
    if (machine_.cores == 0) return chimera::sum_seconds(machine_, link_of_rings(machine_, near), count, bytes);
    const double on_each = near > 1 ? chimera::sum_seconds(machine_, within, near, bytes) : 0;
    return on_each + chimera::sum_seconds(machine_, between, count / near, bytes);
  }

  [[nodiscard]] bool is_over_nodes(const std::vector<RankId>& ranks) const {
    return node_of(ranks.front()) != node_of(ranks.back());  // ascending
  }

  void add_nodes() {
    const auto node = [&](std::int64_t group, std::int64_t worker) {
      return node_of(ranks_.rank({GroupId(group), WorkerId(worker)}));
    };
    NodePlacement& nodes = model_.nodes;
    std::vector<std::int64_t> known;
    for (std::int64_t worker = 0; worker < ranks_.workers; ++worker) {
      const auto own = std::ranges::find(known, node(0, worker));
      nodes.node_of.push_back(static_cast<std::size_t>(own - known.begin()));
      if (own == known.end()) known.push_back(node(0, worker));
      int copies = 0;
      for (std::int64_t group = 0; group < ranks_.data_parallel; ++group)
        copies += node(group, worker) == node(0, worker) ? 1 : 0;
      nodes.copies.push_back(copies);
    }
    for (const auto& ranks : ranks_of_) nodes.sums_leave.push_back(is_over_nodes(ranks));
  }

  void add_computing_share(const AllReduceCosts& costs) {
    double computing = 0;
    double all = 0;
    const auto add = [&](const std::vector<RankId>& ranks, double seconds, double bytes) {
      const auto count = static_cast<std::int64_t>(ranks.size());
      const double near = chimera::sum_seconds(machine_, machine_.all_reduce.within_node, count, bytes);
      computing += std::min(seconds, share_of_all_reduce() * near);
      all += seconds;
    };
    for (std::size_t s = 0; s < costs.seconds.size(); ++s) add(ranks_of_[s], costs.seconds[s], summed_bytes_[s]);
    if (costs.tied) add(ranks_of_.back(), *costs.tied, summed_bytes_.back());
    if (all > 0) model_.computing_share_of_sums = computing / all;
  }

  void add_sums() {
    const bool tied = problem_.model.tied;
    ranks_of_ = ranks_.ranks_of(gradient_groups(schedule_.placement, tied));
    const double weight_bytes = static_cast<double>(workload_.weight_bytes);
    const double matrix = tied ? static_cast<double>(tied_matrix()) * weight_bytes : 0;
    AllReduceCosts costs;
    costs.data_parallel = candidate_.data_parallel;
    for (std::size_t s = 0; s < model_.footprints.size(); ++s) {
      double bytes = static_cast<double>(model_.footprints[s].parameters) * weight_bytes;
      if (tied && uses_tied_matrix(StageId(static_cast<std::int64_t>(s)), schedule_.stages)) bytes -= matrix;
      summed_bytes_.push_back(std::max(0.0, bytes));
      costs.seconds.push_back(sum_seconds(ranks_of_[s], summed_bytes_.back()));
    }
    if (tied) {
      summed_bytes_.push_back(matrix);
      costs.tied = sum_seconds(ranks_of_.back(), matrix);
    }
    // Such a schedule has a single replica.
    if (schedule_.updates && candidate_.data_parallel == 1) return;
    model_.costs.all_reduce = costs;
  }

  void add_updates() {
    for (std::size_t s = 0; s < model_.footprints.size(); ++s) {
      double seconds = machine_.optimizer_seconds * static_cast<double>(model_.footprints[s].parameters);
      const auto copies = static_cast<double>(ranks_of_[s].size());
      if (problem_.shard_optimizer && model_.costs.all_reduce) {
        model_.gathers.push_back(model_.costs.all_reduce->seconds[s]);
        seconds = seconds / copies + model_.gathers.back();
        model_.costs.memory[s].optimizer /= copies;
      }
      model_.costs.optimizer.push_back(seconds);
    }
  }

  const PlanProblem& problem_;
  const MachineProfile& machine_;
  const Candidate& candidate_;
  const Schedule& schedule_;
  Workload workload_;  // workload of the schedule's micro-batches
  RankLayout ranks_;
  LayerCosts layers_;
  LayerCosts sums_;                                  // all-reduces over the T workers
  std::array<std::int64_t, kLayerKinds> held_ = {};  // parameters on each of the T workers
  std::vector<bool> near_;                           // [boundary]: is_near()
  RankGroups ranks_of_;
  std::vector<double> summed_bytes_;   // [parameter group]
  std::vector<double> recomputation_;  // [stage]: time if the stage recomputes
  StageModel model_;
};

}  // namespace

StageModel stage_model(const PlanProblem& problem, const Candidate& candidate, const Schedule& schedule,
                       const std::vector<StageLayers>& partition) {
  return Builder(problem, candidate, schedule).run(partition);
}

StageModel stage_bytes(const ModelConfig& model, const std::vector<StageLayers>& partition, const Schedule& schedule,
                       Workload workload) {
  const double part = schedule.micro_batch_scale;
  workload.micro_batch_size = std::llround(static_cast<double>(workload.micro_batch_size) * part);
  workload.slices = schedule.slices;
  StageModel result;
  for (const StageLayers& stage : partition) {
    result.footprints.push_back(stage_footprint(model, stage, workload));
    StageMemory memory = result.footprints.back().memory;
    memory.activations /= part;  // costs are per full micro-batch
    memory.boundary /= part;
    memory.keys_and_values /= part;
    if (memory.deferred) memory.deferred = *memory.deferred / part;
    result.costs.memory.push_back(memory);
  }
  if (schedule.slices > 1) {
    const double attention = attention_share(model, workload.sequence);
    result.costs.slices = {attention, as_fractions(balanced_slices(schedule.slices, workload.sequence, attention))};
  }
  const LoweringOptions lowering;
  result.costs.buffers = {lowering.receives_ahead, lowering.sends_behind};
  return result;
}

std::vector<double> offloadable_bytes(const StageModel& model, double micro_batch_scale,
                                      const std::set<StageId>& recompute) {
  std::vector<double> bytes;
  for (std::size_t s = 0; s < model.footprints.size(); ++s) {
    const StageMemory& memory = model.costs.memory[s];
    const bool only_input = recompute.contains(StageId(static_cast<std::int64_t>(s)));
    const double more = memory.activations - model.footprints[s].stays / micro_batch_scale;
    bytes.push_back(only_input ? memory.boundary : std::max(0.0, more));
  }
  return bytes;
}

bool shares_cores(const PlanProblem& problem) {
  const MachineProfile& machine = problem.machine;
  if (machine.cores == 0) return false;
  return std::min(problem.workers, machine.workers_per_node) * machine.threads > machine.cores;
}

}  // namespace chimera

#include "plan/stage_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "model_config/matrices.h"
#include "model_config/parameters.h"
#include "model_config/tensor_cut.h"
#include "passes/lower.h"
#include "plan/layer_times.h"
#include "plan/machine.h"
#include "schedule/rank_layout.h"

// StageModelBuilder turns a candidate into the costs of its stages: times of layers from the machine profile, bytes
// from footprints, links from the placement on nodes. All costs are per full micro-batch, so times of halved
// micro-batches are divided by the schedule's scale (full()). The order of run() matters: sums need the footprints, and
// updates need the times of sums.

namespace chimera {
namespace {

constexpr double real(std::int64_t number) { return static_cast<double>(number); }

/// Returns bytes of a user's own layers as stage_bytes() does; working sets are unknown and therefore 0.
StageModel own_bytes(const std::vector<OwnLayer>& layers, const std::vector<StageLayers>& partition,
                     std::int64_t micro_batch_size, const Workload& workload) {
  const auto samples = static_cast<double>(micro_batch_size);
  StageModel result;
  for (const StageLayers& stage : partition) {
    StageFootprint& footprint = result.footprints.emplace_back();
    StageMemory memory;
    double state = 0;
    for (std::int64_t i = stage.first_layer; i < stage.end_layer; ++i) {
      const OwnLayer& layer = layers[static_cast<std::size_t>(i)];
      memory.weights += layer.weights;
      memory.activations += layer.activations * samples;
      if (i >= stage.end_layer - stage.on_device) footprint.stays += layer.activations * samples;
      state += layer.state;
    }
    memory.gradients = memory.weights;
    // A user's layer gives gradients and optimizer state as one number.
    memory.optimizer = std::max(0.0, state - memory.gradients);
    if (stage.first_layer > 0)
      memory.boundary = layers[static_cast<std::size_t>(stage.first_layer - 1)].output * samples;
    memory.activations += memory.boundary;
    footprint.parameters = std::llround(memory.weights / static_cast<double>(workload.weight_bytes));
    footprint.memory = memory;
    result.costs.memory.push_back(memory);
  }
  const LoweringOptions lowering;
  result.costs.buffers = {lowering.receives_ahead, lowering.sends_behind};
  return result;
}

constexpr double kMin = std::numeric_limits<double>::min();  // not 0, which means no recomputation

/// Costs per kind of layer, or per layer of a user's own model.
struct LayerCosts {
  std::array<LayerTime, kLayerKinds> kinds;
  std::vector<LayerTime> own;

  [[nodiscard]] double of(const StageLayers& stage, double LayerTime::*part) const {
    // kinds has the order of LayerKind: embedding, block, head.
    double seconds = static_cast<double>(stage.blocks()) * kinds[1].*part;
    if (stage.embedding) seconds += kinds[0].*part;
    if (stage.head) seconds += kinds[2].*part;
    if (own.empty()) return seconds;
    for (std::int64_t i = stage.first_layer; i < stage.end_layer; ++i)
      seconds += own[static_cast<std::size_t>(i)].*part;
    return seconds;
  }
};

// Ranks fill the nodes of the machine in order, so the replica layout (near or far, schedule/rank_layout.h) decides
// which messages and all-reduces leave a node. Links between nodes have other times than links within a node. Each link
// has a latency alpha, a time per byte beta, and a burst, the bytes that an idle link passes without that time
// (LinkTimes in machine.h).
/// Links of one candidate. *Near* means: within a node. A *boundary* is the place between two consecutive stages, where
/// messages pass.
class StageLinks {
 public:
  /// Borrows its arguments.
  StageLinks(const PlanProblem& problem, const Candidate& candidate, const Schedule& schedule)
      : problem_(problem), candidate_(candidate), schedule_(schedule) {}

  /// Returns the number of ranks, in all data-parallel groups, that sum the gradients of a stage.
  [[nodiscard]] std::size_t copies(std::size_t stage) const { return groups_[stage].size(); }
  /// Returns the costs of messages. `memory` is indexed by stage; its boundary is the bytes of the stage's input.
  [[nodiscard]] LinkCosts message_costs(const std::vector<StageMemory>& memory) const {
    const LinkTimes at_ends = copy(!messages_leave_nodes());
    LinkCosts costs;
    costs.alpha = link().alpha;
    costs.beta = link().beta;
    if (machine_.cores > 0) {  // measured message times include the work at both ends
      costs.alpha = std::max(0.0, costs.alpha - 2 * at_ends.alpha);
      costs.beta = std::max(0.0, costs.beta - 2 * at_ends.beta);
    }
    if (shares_cores(problem_)) costs.alpha += machine_.busy_delay;
    for (std::size_t s = 1; s < memory.size(); ++s) {
      const LinkTimes taken = copy(near_[s - 1]);
      costs.bytes.push_back(memory[s].boundary);
      costs.copies.push_back(taken.alpha / schedule_.micro_batch_scale * static_cast<double>(schedule_.slices) +
                             taken.beta * costs.bytes.back());
    }
    if (std::ranges::count(costs.copies, 0) == std::ssize(costs.copies)) costs.copies.clear();
    if (messages_leave_nodes()) take_near_links(costs);
    for (std::size_t s = 0; link().burst > 0 && s < near_.size(); ++s)
      costs.bursts.push_back(near_[s] ? 0 : link().beta * link().burst);
    return costs;
  }
  /// Sets the costs of all-reduces, and the nodes of workers if there are several. `tied_matrix` is the number of
  /// parameters, on each worker, of the matrix that is both token embedding and output matrix; 0: the model has none.
  void add_sums(StageModel& model, std::int64_t tied_matrix) const {
    const double weight_bytes = static_cast<double>(problem_.workload.weight_bytes);
    const double matrix = static_cast<double>(tied_matrix) * weight_bytes;
    const bool leaves_nodes = ranks_.num_ranks() > places_per_node();
    if (leaves_nodes) model.nodes = node_placement();
    if (schedule_.updates && candidate_.data_parallel == 1) return;
    AllReduceCosts sums{.data_parallel = candidate_.data_parallel, .tied = problem_.model.tied};
    std::vector<double> summed;  // bytes, [parameter group]
    for (std::size_t s = 0; s < model.footprints.size(); ++s) {
      double bytes = static_cast<double>(model.footprints[s].parameters) * weight_bytes;
      if (uses_tied_matrix(StageId(static_cast<std::int64_t>(s)), schedule_.stages)) bytes -= matrix;
      summed.push_back(std::max(0.0, bytes));
    }
    if (sums.tied) summed.push_back(matrix);
    for (std::size_t s = 0; s < summed.size(); ++s) sums.seconds.push_back(sum_seconds(groups_[s], summed[s]));
    if (leaves_nodes) model.computing_share_of_sums = computing_share(sums, summed);
    model.costs.all_reduce = std::move(sums);
  }

 private:
  [[nodiscard]] std::int64_t places_per_node() const {
    return std::max<std::int64_t>(1, machine_.workers_per_node / candidate_.tensor_parallel);
  }
  [[nodiscard]] bool messages_leave_nodes() const { return std::ranges::find(near_, false) != near_.end(); }
  [[nodiscard]] const LinkTimes& link() const {
    const LinkProfile& links = machine_.point_to_point;
    return messages_leave_nodes() ? links.between_nodes : links.within_node;
  }
  /// Returns whether messages delay ops, because no core is free for sending and receiving.
  [[nodiscard]] bool messages_take_cores() const {
    const std::int64_t workers = std::min(problem_.workers, machine_.workers_per_node);
    return machine_.cores > 0 && 2 * workers * machine_.threads > machine_.cores;
  }
  /// Returns the compute time that a message costs at each of its ends. If it was not measured, and messages delay ops,
  /// it is half the time of the message. `is_near`: whether both ends are on one node.
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
  /// Sets LinkCosts::seconds, with beta of the links within a node at boundaries that lie within a node.
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
  /// Returns how many of the ranks are on each node if all nodes have equally many, else 1.
  [[nodiscard]] std::int64_t ranks_on_each_node(const std::vector<RankId>& ranks) const {
    std::map<std::int64_t, std::int64_t> counts;
    for (const RankId rank : ranks) ++counts[node_of(rank)];
    const std::int64_t first = counts.begin()->second;
    return std::ranges::all_of(counts, [&](const auto& node) { return node.second == first; }) ? first : 1;
  }
  /// Returns the fraction of an all-reduce's time that summing gradients takes. With a sharded optimizer, only the
  /// reduce-scatter sums gradients; the all-gather comes after the update, and takes as long. If two ranks update each
  /// shard (PlanProblem::second_shards), the ranks need all sums.
  [[nodiscard]] double share_of_all_reduce() const {
    return (problem_.shard_optimizer || candidate_.shard_optimizer) && !problem_.second_shards ? 0.5 : 1;
  }
  /// Returns the seconds in which these ranks sum `bytes` of gradients. Over several nodes, processes sum in two levels
  /// (GlooTransport), and GPUs in as many rings as each node has ranks.
  [[nodiscard]] double sum_seconds(const std::vector<RankId>& ranks, double bytes) const {
    const auto& [within, between] = machine_.all_reduce;
    const auto count = static_cast<std::int64_t>(ranks.size());
    const double share = share_of_all_reduce();
    if (!is_over_nodes(ranks)) return share * chimera::sum_seconds(machine_, within, count, bytes);
    const std::int64_t near = ranks_on_each_node(ranks);
    if (machine_.cores == 0) return share * chimera::sum_seconds(machine_, link_of_rings(machine_, near), count, bytes);
    const double on_each = near > 1 ? chimera::sum_seconds(machine_, within, near, bytes) : 0;
    return share * (on_each + chimera::sum_seconds(machine_, between, count / near, bytes));
  }
  [[nodiscard]] bool is_over_nodes(const std::vector<RankId>& ranks) const {
    return node_of(ranks.front()) != node_of(ranks.back());  // ascending
  }
  [[nodiscard]] NodePlacement node_placement() const {
    const auto node = [&](std::int64_t group, std::int64_t worker) {
      return node_of(ranks_.rank({GroupId(group), WorkerId(worker)}));
    };
    NodePlacement nodes;
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
    for (const auto& ranks : groups_) nodes.sums_leave.push_back(is_over_nodes(ranks));
    return nodes;
  }
  /// Returns StageModel::computing_share_of_sums: the all-reduces' time if all ranks were on one node, divided by their
  /// time.
  [[nodiscard]] double computing_share(const AllReduceCosts& costs, const std::vector<double>& bytes) const {
    double computing = 0;
    double all = 0;
    const auto add = [&](const std::vector<RankId>& ranks, double seconds, double of_ranks) {
      const auto count = static_cast<std::int64_t>(ranks.size());
      const double near = chimera::sum_seconds(machine_, machine_.all_reduce.within_node, count, of_ranks);
      computing += std::min(seconds, share_of_all_reduce() * near);
      all += seconds;
    };
    for (std::size_t s = 0; s < costs.seconds.size(); ++s) add(groups_[s], costs.seconds[s], bytes[s]);
    return all > 0 ? computing / all : 1;
  }

  const PlanProblem& problem_;
  const MachineProfile& machine_ = problem_.machine;
  const Candidate& candidate_;
  const Schedule& schedule_;
  RankLayout ranks_{static_cast<std::int64_t>(schedule_.workers.size()), candidate_.data_parallel,
                    candidate_.replica_layout};
  RankGroups groups_ = ranks_.ranks_of(gradient_groups(schedule_.placement, problem_.model.tied));  // [parameter group]
  std::vector<bool> near_ = near_boundaries();  // [s]: whether all messages between stages s and s+1 stay within a node
};

class StageModelBuilder {
 public:
  StageModelBuilder(const PlanProblem& problem, const Candidate& candidate, const Schedule& schedule)
      : problem_(problem), candidate_(candidate), schedule_(schedule) {
    const double size = static_cast<double>(candidate.micro_batch_size) * schedule.micro_batch_scale;
    workload_.micro_batch_size = std::llround(size);
    workload_.slices = schedule.slices;
    for (const OwnLayer& layer : problem.layers)
      layers_.own.push_back(interpolate_time(layer.times, static_cast<double>(workload_.micro_batch_size)));
    if (!is_own())
      for (int kind = 0; kind < kLayerKinds; ++kind) set_layer(static_cast<LayerKind>(kind));
  }

  StageModel run(const std::vector<StageLayers>& partition) {
    Workload whole = problem_.workload;
    whole.micro_batch_size = candidate_.micro_batch_size;
    // `score_bytes` already includes the masks of such kernels.
    whole.dropout = whole.dropout && machine_.score_bytes == 0;
    whole.tensor_parallel = candidate_.tensor_parallel;
    model_ = is_own() ? own_bytes(problem_.layers, partition, candidate_.micro_batch_size, workload_)
                      : stage_bytes(problem_.model, partition, schedule_, whole);
    model_.reserved_bytes = machine_.reserved.all();
    // Profiles of GPUs have no cores.
    if (machine_.cores == 0) model_.costs.buffers.receives_ahead = kReceivesAheadOnGpus;
    if (!is_own()) add_savings();
    for (std::size_t s = 0; s < partition.size(); ++s) {
      add_times(partition[s]);
      if (is_own()) continue;
      scale_activations(s, partition[s]);
      if (partition[s].head && machine_.whole_head) keep_all_logits(s);
    }
    if (!candidate_.recompute.empty()) add_recomputation();
    if (!candidate_.offload.empty()) add_offload();
    model_.costs.links = links_.message_costs(model_.costs.memory);
    links_.add_sums(model_, problem_.model.tied ? tied_matrix() : 0);
    add_updates(partition);
    if (schedule_.slices > 1) add_slices();
    model_.costs.all_reduce_placement = problem_.sync;
    model_.costs.blocking_sends = problem_.blocking_sends;
    model_.step_seconds = machine_.step_overhead;
    return std::move(model_);
  }

 private:
  [[nodiscard]] bool is_own() const { return !problem_.layers.empty(); }

  [[nodiscard]] bool is_sharded() const { return problem_.shard_optimizer || candidate_.shard_optimizer; }

  void add_slices() {
    const std::int64_t size = candidate_.micro_batch_size;
    model_.costs.slices = {.attention = attention_time_share(problem_, size),
                           .bounds = as_fractions(planned_slices(problem_, size, schedule_.slices))};
  }

  void set_layer(LayerKind kind) {
    const std::int64_t count = candidate_.tensor_parallel;
    const auto index = static_cast<std::size_t>(kind);
    layers_.kinds[index] = split_layer_time(machine_, problem_.model, kind, workload_, count);
    sums_.kinds[index] = tensor_sums(machine_, problem_.model, kind, workload_, count);
  }

  [[nodiscard]] std::int64_t tied_matrix() const {
    const std::int64_t count = candidate_.tensor_parallel;
    // The largest part of T ranks.
    return (tied_parameter(problem_.model).count() + count - 1) / count;
  }

  [[nodiscard]] double full(double of_micro_batch) const { return of_micro_batch / schedule_.micro_batch_scale; }

  [[nodiscard]] double slices() const { return real(schedule_.slices); }

  /// Workers that share cores even out core differences. Measured sums in ops include the wait for the slowest core.
  [[nodiscard]] double slowest_core() const {
    const bool waits = has_op_sums(machine_, candidate_.tensor_parallel);
    // A step waits for the slowest of all workers.
    const double slowest = problem_.workers > 1 && !shares_cores(problem_) && !waits ? 1 + machine_.core_imbalance : 1;
    return slowest * (1 + machine_.scale_loss * std::log2(static_cast<double>(problem_.workers)));
  }

  /// stage_bytes() has set the bytes; the times replace its FLOPs. The scores that other kernels keep are gone if the
  /// attention runs again.
  void add_savings() {
    const LayerTime& block = layers_.kinds[1];
    // Of the four exchanges of a forward, the norms' results take two, if the ranks divide tokens, and attention two.
    const double sums = full(sums_.kinds[1].recompute);
    const double of_norms = divides_tokens(workload_, candidate_.tensor_parallel) ? 0.5 : 0;
    Workload split = workload_;
    split.tensor_parallel = candidate_.tensor_parallel;
    for (const RecomputeLevel level : kRecomputeLevels) {
      BlockSaving& saving = model_.savings[static_cast<std::size_t>(level)];
      saving.freed *= machine_.activation_scale;
      if (level >= RecomputeLevel::Attention) saving.freed += machine_.activation_scale * scores();
      saving.seconds =
          full(recompute_seconds(machine_, problem_.model, split, level, block.recompute)) * slowest_core() +
          (level == RecomputeLevel::Full        ? 1
           : level == RecomputeLevel::Attention ? 0.5
                                                : of_norms) *
              sums;
    }
  }

  /// Bytes of a block's attention scores, if kernels keep them.
  [[nodiscard]] double scores() const {
    const auto length = static_cast<double>(workload_.sequence);
    const TensorPlace place{0, candidate_.tensor_parallel, head_groups(problem_.model, candidate_.tensor_parallel)};
    const double pairs = real(place.share_of_heads(problem_.model.heads).count) * length * length;
    return full(real(workload_.micro_batch_size) * pairs * machine_.score_bytes);
  }

  /// Sums over T workers come on top of the slowest core's time, because all workers wait for them together.
  void add_times(const StageLayers& stage) {
    LayerTime& waits = model_.tensor_sums.emplace_back();
    const auto sum = [&](double LayerTime::*part) {
      waits.*part = full(sums_.of(stage, part));
      return full(layers_.of(stage, part)) * slowest_core() + waits.*part;
    };
    const double more = full(machine_.op_overhead) * slices();
    const double forward = sum(&LayerTime::forward);
    double input = sum(&LayerTime::input_gradient);
    const double weight = sum(&LayerTime::weight_gradient);
    for (const RecomputeLevel level : kRecomputeLevels)
      input += real(stage.levels[level]) * model_.savings[static_cast<std::size_t>(level)].seconds;
    model_.costs.stages.push_back({forward + more, input + weight + more, input + more, weight + more});
    recomputation_.push_back(sum(&LayerTime::recompute) + more);
  }

  /// Other kernels keep other bytes than this project's: a factor on all, and attention scores if they keep them.
  void scale_activations(std::size_t stage, const StageLayers& layers) {
    const double scale = machine_.activation_scale;
    // Of the blocks that run attention again, one holds its scores at a time.
    const std::int64_t again = layers.levels[RecomputeLevel::Attention] + layers.levels[RecomputeLevel::Full];
    const double holders = real(layers.blocks() - again + std::min<std::int64_t>(again, 1));
    StageMemory& memory = model_.costs.memory[stage];
    memory.activations = memory.boundary + scale * (memory.activations - memory.boundary + holders * scores());
    // Scores are not kept between I and W.
    if (memory.deferred) memory.deferred = *memory.deferred * scale;
    for (double& bytes : model_.footprints[stage].working_sets) bytes *= scale;
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
    const double scale = machine_.activation_scale / real(candidate_.tensor_parallel);
    model_.costs.memory[stage].activations += full(scale * (norms + logits - ours));
    StageFootprint& footprint = model_.footprints[stage];
    const double at_once = scale * logits / slices();
    double& forward = footprint.working_set(OpKind::Forward);
    double& backward = footprint.working_set(OpKind::Backward);
    forward = std::max(forward, at_once);
    backward = std::max(backward, 2 * at_once);
  }

  void add_recomputation() {
    model_.costs.recompute.assign(model_.costs.stages.size(), 0);
    for (const StageId stage : candidate_.recompute)
      // A profile may say 0, which would mean that the stage does not recompute.
      model_.costs.recompute[stage.index()] = std::max(recomputation_[stage.index()], kMin);
  }

  void add_offload() {
    OffloadCosts costs{.beta = 1 / (machine_.host_bandwidth > 0 ? machine_.host_bandwidth : kHostBandwidth),
                       .bytes = offloadable_bytes(model_, schedule_.micro_batch_scale, candidate_.recompute)};
    for (std::size_t s = 0; s < costs.bytes.size(); ++s)
      if (!candidate_.offload.contains(StageId(static_cast<std::int64_t>(s)))) costs.bytes[s] = 0;
    model_.costs.offload = std::move(costs);
  }

  void add_updates(const std::vector<StageLayers>& partition) {
    const bool is_muon = workload_.iteration_bytes > 0 && !is_own();
    for (std::size_t s = 0; s < model_.footprints.size(); ++s) {
      double seconds = machine_.optimizer_seconds * static_cast<double>(model_.footprints[s].parameters);
      const bool shares = model_.costs.all_reduce && !schedule_.updates;
      std::size_t copies = shares ? links_.copies(s) : 1;
      double gather = 0;
      if (is_sharded() && shares) {
        // Without second shards, `all_reduce` is a reduce-scatter, which takes as long as the all-gather.
        gather = (problem_.second_shards ? 0.5 : 1) * model_.costs.all_reduce->seconds[s];
        const double shards = static_cast<double>(copies) / (problem_.second_shards ? 2 : 1);
        // Each copy updates one share of the stage, or with second shards two.
        seconds /= shards;
        model_.costs.memory[s].optimizer /= shards;
        if (problem_.second_shards) copies = std::max<std::size_t>(copies / 2, 1);
      } else if (is_muon) {
        Workload held = workload_;
        held.tensor_parallel = candidate_.tensor_parallel;
        const double bytes = gathered_bytes(problem_.model, partition[s], held, copies);
        model_.costs.memory[s].optimizer += bytes;
        // An all-gather takes half the time of an all-reduce.
        if (bytes > 0) gather = 0.5 * model_.costs.all_reduce->seconds[s] * bytes / model_.costs.memory[s].gradients;
      }
      if (is_muon) seconds += iteration_seconds(partition[s], copies);
      if (shares && (is_sharded() || is_muon)) model_.gathers.push_back(gather);
      model_.costs.optimizer.push_back(seconds + gather);
    }
  }

  /// Returns the time of the iterations of the busiest copy, and of gathering its matrices from T ranks, at the
  /// machine's rate of large products. If this is not known, at the rate of a block's forward.
  [[nodiscard]] double iteration_seconds(const StageLayers& stage, std::size_t copies) const {
    const DataType type = workload_.iteration_bytes == 2   ? DataType::BFloat16
                          : workload_.iteration_bytes == 8 ? DataType::Float64
                                                           : DataType::Float32;
    const auto known = machine_.matrix_flops.find(type);
    const double rate =
        known != machine_.matrix_flops.end()
            ? known->second
            : layer_footprint(problem_.model, LayerKind::Block, workload_).forward_flops / layers_.kinds[1].forward;
    const std::vector<LogicalMatrix> matrices = logical_matrices(problem_.model, stage);
    const auto share = 1 / static_cast<double>(copies);
    const double bytes = share * real(workload_.weight_bytes * elements_of(matrices));
    return busiest_iterations(matrices, copies) / rate +
           tensor_gather_seconds(machine_, bytes, share * real(std::ssize(matrices)), candidate_.tensor_parallel);
  }

  const PlanProblem& problem_;
  const MachineProfile& machine_ = problem_.machine;
  const Candidate& candidate_;
  const Schedule& schedule_;
  Workload workload_ = problem_.workload;  // workload of the schedule's micro-batches
  StageLinks links_{problem_, candidate_, schedule_};
  LayerCosts layers_;
  LayerCosts sums_;                    // all-reduces over the T workers
  std::vector<double> recomputation_;  // [stage]: time if the stage recomputes
  StageModel model_;
};

}  // namespace

double attention_time_share(const PlanProblem& problem, std::int64_t micro_batch_size) {
  Workload workload = problem.workload;
  workload.micro_batch_size = micro_batch_size;
  return attention_time_share(problem.machine, problem.model, workload);
}

std::vector<std::int64_t> planned_slices(const PlanProblem& problem, std::int64_t micro_batch_size,
                                         std::int64_t slices) {
  return balanced_slices(slices, problem.workload.sequence, attention_time_share(problem, micro_batch_size));
}

StageModel stage_model(const PlanProblem& problem, const Candidate& candidate, const Schedule& schedule,
                       const std::vector<StageLayers>& partition) {
  return StageModelBuilder(problem, candidate, schedule).run(partition);
}

StageModel stage_bytes(const ModelConfig& model, const std::vector<StageLayers>& partition, const Schedule& schedule,
                       Workload workload, double flops_per_byte) {
  const double part = schedule.micro_batch_scale;
  workload.micro_batch_size = std::llround(static_cast<double>(workload.micro_batch_size) * part);
  workload.slices = schedule.slices;
  StageModel result;
  const LayerFootprint whole = layer_footprint(model, LayerKind::Block, workload);
  const double ranks = real(workload.tensor_parallel);  // FLOPs are those of all
  for (const RecomputeLevel level : kRecomputeLevels) {
    const LayerFootprint block = layer_footprint(model, LayerKind::Block, workload, level);
    const double flops = level == RecomputeLevel::Cheap ? flops_per_byte * ranks * cheap_bytes(model, workload)
                                                        : block.input_gradient_flops - whole.input_gradient_flops;
    result.savings[static_cast<std::size_t>(level)] = {(whole.activations - block.activations) / part, flops / part};
  }
  for (const StageLayers& stage : partition) {
    const auto is_equal = [&](const StageLayers& other) {
      return other.blocks() == stage.blocks() && other.embedding == stage.embedding && other.head == stage.head &&
             other.levels == stage.levels && other.on_device == stage.on_device;
    };
    // Counting a stage's parameters is slow, and most stages are equal. The first equal stage: its own place, if it has
    // not come yet.
    const auto known = static_cast<std::size_t>(std::ranges::find_if(partition, is_equal) - partition.begin());
    result.footprints.push_back(known < result.footprints.size() ? result.footprints[known]
                                                                 : stage_footprint(model, stage, workload));
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

}  // namespace chimera

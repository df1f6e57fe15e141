#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model_config/footprint.h"
#include "schedule/json_value.h"
#include "simulate/contention.h"

// A machine as the planner sees it: what layers, messages, sums and updates take there. Measured by `chimera profile`,
// edited by hand, or made up from public figures.

// What the JSON files of profiles have in common: limits, and links.

// Links between two nodes, as they are measured apart from the nodes themselves.

// Profiles of several nodes as one.

namespace chimera {

/// Seconds of one layer's ops on a micro-batch of that many sequences.
struct LayerTime {
  std::int64_t micro_batch_size = 1;
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double recompute = 0;  // that a recomputed micro-batch takes more, all in all
  double spread = 0;     // half the distance of the quartiles of forward + backward over their median
  friend bool operator==(const LayerTime&, const LayerTime&) = default;
};

/// One kind of layer as it was measured; its sizes are those of `model`, of which the number of layers means nothing.
struct LayerTimes {
  LayerKind kind = LayerKind::Block;
  ModelConfig model = {};
  std::int64_t sequence = 128;
  DataType dtype = DataType::Float32;
  std::vector<LayerTime> times = {};  // ascending micro-batch sizes, at least one
  friend bool operator==(const LayerTimes&, const LayerTimes&) = default;
};

/// A message of L bytes takes alpha + beta L seconds; over a link that lets a burst pass before it holds back (a token
/// bucket, as clouds and `tc tbf` have), alpha + beta (L - burst) where the link was idle before. A sum of L bytes over
/// r workers takes 2 log2(r) alpha + 2 (r-1)/r beta L (Rabenseifner's algorithm; Li and Hoefler, SC'21, section 3.4).
struct LinkTimes {
  double alpha = 0;
  double beta = 0;
  double burst = 0;  // bytes, of messages
  friend bool operator==(const LinkTimes&, const LinkTimes&) = default;
};

/// Links between workers of one node, and between nodes.
struct LinkProfile {
  LinkTimes within_node = {};
  LinkTimes between_nodes = {};
  friend bool operator==(const LinkProfile&, const LinkProfile&) = default;
};

struct MachineProfile {
  std::string name = {};
  std::vector<std::string> sources = {};  // where the figures come from: a command, or publications
  /// Cores of a node that its workers share, each using `threads` of them while it computes; 0: every worker has a
  /// device of its own.
  std::int64_t cores = 0;
  std::int64_t threads = 1;
  std::int64_t workers_per_node = 1;  // more are on other nodes
  double memory_bytes = 0;            // that a worker may use
  /// Bytes that its kernels take for activations, over those of stage_footprint(): 1 where they are ours.
  double activation_scale = 1;
  /// Before that, what attention keeps for each head and pair of tokens; 0: its kernels are ours.
  double score_bytes = 0;
  /// Bytes that attention moves through the worker's memory for each head and pair of tokens in a forward, and again in
  /// the gradient of its input; 0: what was measured grows with FLOPs alone. Needs `memory_bandwidth`.
  double score_traffic = 0;
  double memory_bandwidth = 0;  // bytes that a worker's memory moves in a second; 0: not known
  std::vector<LayerTimes> layers = {};
  LinkProfile point_to_point = {};
  LinkProfile all_reduce = {};
  /// What a message of L bytes takes of its sender's and again of its receiver's compute, alpha + beta L: copies
  /// through the host's memory, or the processor's work for sockets. It counts where workers have devices of their own,
  /// and where no core is left for messages.
  LinkTimes message_copy = {};
  /// The same of a message between nodes; zeros: as within one.
  LinkTimes node_message_copy = {};
  /// What ops, messages and sums of one worker cost each other where each worker has a device or core of its own.
  Contention contention = {};
  /// By what share beta of a sum grows with each doubling of its workers beyond two.
  double sum_rank_loss = 0;
  /// By what share ops take longer with each doubling of the workers of a run beyond one.
  double scale_loss = 0;
  /// What a message takes more where workers share their cores: its ends wait for one. Seconds.
  double busy_delay = 0;
  /// How much longer an op takes on the slowest of the cores than on average, where all compute at once: a share.
  double core_imbalance = 0;
  /// By what share an op takes longer where workers share their cores: caches have what another one left there.
  double core_sharing = 0;
  double optimizer_seconds = 0;  // of an update, for each parameter
  /// FLOP/s of a worker's products of large matrices of that type, while all workers of a node compute; of the types
  /// that are known.
  std::map<DataType, double> matrix_flops = {};
  double op_overhead = 0;    // seconds that the host adds to each op
  double step_overhead = 0;  // and to each step
  friend bool operator==(const MachineProfile&, const MachineProfile&) = default;
};

/// FLOP/s that so many workers of `threads` cores each, all on one node, reach together in products of large matrices:
/// no more than its cores do. 0 where the profile does not know.
[[nodiscard]] double matrix_peak(const MachineProfile& machine, DataType dtype, std::int64_t workers,
                                 std::int64_t threads);

/// Seconds of a sum of so many bytes over `copies` workers on links of that kind, with the loss that copies bring; 0
/// for one copy.
[[nodiscard]] double sum_seconds(const MachineProfile& machine, const LinkTimes& link, std::int64_t copies,
                                 double bytes);

/// Reads a profile (docs/machine_profile.md); `-` is standard input. Throws ConfigError, naming file and entry, for
/// anything missing, negative, not finite, beyond any machine (10^9 seconds, 10^18 bytes), unknown or said twice.
[[nodiscard]] MachineProfile read_machine(const std::string& path);
/// Reads it from a text that messages call `source`.
[[nodiscard]] MachineProfile machine_from_json(const std::string& text, const std::string& source);

/// The profile as JSON text that read_machine() reads back to the same value (every model's `layers` as 1).
[[nodiscard]] std::string to_json(const MachineProfile& machine);

/// Seconds of one layer's ops there, linear between the measured micro-batch sizes, and beyond them as their last two
/// go on. Where no layer of these sizes was measured, those of the nearest one of the kind, scaled by FLOPs: at as many
/// tokens, by the ratio of the FLOPs; what has none (the embedding, and its gradients) by that of the hidden states;
/// and by the bytes of an element where those differ. What attention moves through memory (score_traffic) is taken out
/// before and added after, so that it grows with heads and the square of the sequence instead. A spread is that of the
/// nearest measured micro-batch size. Throws ConfigError where the profile has no layer of that kind at all.
[[nodiscard]] LayerTime layer_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                   const Workload& workload);

inline constexpr double kMostSeconds = 1e9;  // of anything: 30 years
inline constexpr double kMostBytes = 1e18;
inline constexpr double kMostRatio = 1e6;  // of a slow-down and the like

/// `alpha` and `beta`, and `burst` where there is one. Throws ConfigError, naming the entry, for anything else.
[[nodiscard]] LinkTimes read_link(const JsonValue& value);
/// What read_link() reads back to the same value.
[[nodiscard]] nlohmann::ordered_json link_json(const LinkTimes& times);

/// Links between two nodes, over their network, in seconds and bytes.
struct NodeLinks {
  LinkTimes messages;
  LinkTimes sums;
  double transfers = 0;      ///< Contention::node_transfers
  LinkTimes copies = {};     ///< MachineProfile::node_message_copy
  double step_overhead = 0;  ///< seconds of a step that ranks of both end together
  std::string source;        ///< by what they were measured, and where
  friend bool operator==(const NodeLinks&, const NodeLinks&) = default;
};

/// The machine with those links between its nodes, each of which has that many workers; 0: as many as its cores have
/// room for, where its workers share cores.
[[nodiscard]] MachineProfile with_links_between(MachineProfile machine, const NodeLinks& links,
                                                std::int64_t workers_per_node = 0);

/// The links as JSON text that node_links_from_json() reads back to the same value.
[[nodiscard]] std::string to_json(const NodeLinks& links);
/// Reads it from a text that messages call `source`. Throws ConfigError as machine_from_json() does.
[[nodiscard]] NodeLinks node_links_from_json(const std::string& text, const std::string& source);

/// One profile of nodes that were measured apart, for plans over all of them. Layers are united; a layer and
/// micro-batch size that several measured takes the mean of their times and the largest spread. Links within nodes, the
/// update and the overheads are means; memory is the least. Links between nodes are those of the last profile in which
/// they differ from the links within, as one node alone cannot measure them; where there is none, those within.
/// Throws ConfigError for fewer than two, and where nodes differ in cores, threads or workers.
[[nodiscard]] MachineProfile merge_machines(const std::vector<MachineProfile>& machines);

}  // namespace chimera

#pragma once

// The planner's model of a machine: times of layers, links within and between nodes, slowdowns of ops that run at once,
// memory. `chimera profile` measures it, and the profiles in machines/ come from published figures. Profiles are JSON
// files that users may edit; docs/machine_profile.md describes every field. layer_times.h derives times of other
// layers, and stage_model.h the costs of a pipeline's stages.

#include <array>
#include <map>

#include "core/json_fields.h"
#include "model_config/footprint.h"
#include "simulate/contention.h"

namespace chimera {

inline constexpr double kGiB = 1 << 30;  // Bytes

/// Largest numbers that a profile may have.
inline constexpr double kMaxSeconds = 1e9;  // about 30 years
inline constexpr double kMaxBytes = 1e18;
inline constexpr double kMaxRatio = 1e6;     // limit of slowdowns and other ratios
inline constexpr double kMaxOverlap = 0.99;  // limit of fractions of a time that overlap saves

/// Description of a numeric member of a struct in a profile. Each struct lists the numbers that are averaged over
/// profiles once, in a table of these; the reader, the writer, and the functions that average loop over the table.
template <class Struct>
struct NumberField {
  const char* name;       // in JSON
  double Struct::*value;  // the member
  double most;            // largest accepted number
  bool required = false;  // whether a file must have it
};

/// Seconds of a layer's ops for a micro-batch of this size.
struct LayerTime {
  std::int64_t micro_batch_size = 1;  // samples
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double recompute = 0;  // extra seconds per micro-batch if its activations are recomputed
  double spread = 0;     // half the interquartile range of forward + backward, relative to the median
  /// Returns the time of forward and backward.
  [[nodiscard]] double whole() const { return forward + input_gradient + weight_gradient; }
  friend bool operator==(const LayerTime&, const LayerTime&) = default;
};
inline constexpr auto kLayerTimeNumbers =
    std::to_array<NumberField<LayerTime>>({{"forward", &LayerTime::forward, kMaxSeconds, true},
                                           {"input_gradient", &LayerTime::input_gradient, kMaxSeconds, true},
                                           {"weight_gradient", &LayerTime::weight_gradient, kMaxSeconds, true},
                                           {"recompute", &LayerTime::recompute, kMaxSeconds},
                                           {"spread", &LayerTime::spread, kMaxRatio}});

/// Measured times of one kind of layer in a model. The number of layers of `model` is ignored.
struct LayerTimes {
  LayerKind kind = LayerKind::Block;
  ModelConfig model = {};
  std::int64_t sequence = 128;
  DataType dtype = DataType::Float32;
  std::vector<LayerTime> times = {};  // ascending micro-batch sizes, at least one
  std::int64_t tensor_parallel = 1;   // T ranks share the layer; times of one rank, without MachineProfile::op_sum
  friend bool operator==(const LayerTimes&, const LayerTimes&) = default;
};

/// Times of messages or all-reduces over a link. A message of L bytes takes alpha + beta L seconds. Some links limit
/// their rate with a token bucket (clouds, `tc tbf`); if such a link was idle before, a message takes alpha + beta (L -
/// burst). An all-reduce of L bytes over r workers takes 2 log2(r) alpha + 2 (r-1)/r beta L (Rabenseifner's algorithm;
/// Li and Hoefler, SC'21, section 3.4).
struct LinkTimes {
  double alpha = 0;  // seconds
  double beta = 0;   // seconds per byte
  double burst = 0;  // bytes; messages only
  friend bool operator==(const LinkTimes&, const LinkTimes&) = default;
};
inline constexpr auto kLinkNumbers =
    std::to_array<NumberField<LinkTimes>>({{"alpha", &LinkTimes::alpha, kMaxSeconds, true},
                                           {"beta", &LinkTimes::beta, kMaxSeconds, true},
                                           {"burst", &LinkTimes::burst, kMaxBytes}});

inline constexpr auto kContentionNumbers =
    std::to_array<NumberField<Contention>>({{"ops_by_sums", &Contention::ops_by_sums, kMaxRatio, true},
                                            {"sums_by_ops", &Contention::sums_by_ops, kMaxRatio, true},
                                            {"transfers", &Contention::transfers, kMaxRatio, true},
                                            {"sums_overlap", &Contention::sums_overlap, kMaxOverlap},
                                            {"node_transfers", &Contention::node_transfers, kMaxRatio},
                                            {"ops_by_receives", &Contention::ops_by_receives, kMaxRatio},
                                            {"idle_gain", &Contention::idle_gain, kMaxOverlap}});

/// Times between workers of one node, and of two nodes.
struct LinkProfile {
  LinkTimes within_node = {};
  LinkTimes between_nodes = {};
  friend bool operator==(const LinkProfile&, const LinkProfile&) = default;
};

/// Bytes of a GPU's memory that hold no tensors of a step. Estimates: they depend on driver, libraries and topology.
struct ReservedBytes {
  double context = 0;        // CUDA context, kernels, workspaces of libraries
  double communicators = 0;  // buffers of NCCL
  double graphs = 0;         // CUDA graphs
  double margin = 0;         // fragments of the allocator, and what is not counted
  [[nodiscard]] double all() const { return context + communicators + graphs + margin; }
  friend bool operator==(const ReservedBytes&, const ReservedBytes&) = default;
};
inline constexpr auto kReservedNumbers =
    std::to_array<NumberField<ReservedBytes>>({{"context", &ReservedBytes::context, kMaxBytes, true},
                                               {"communicators", &ReservedBytes::communicators, kMaxBytes, true},
                                               {"graphs", &ReservedBytes::graphs, kMaxBytes},
                                               {"margin", &ReservedBytes::margin, kMaxBytes, true}});

/// Returns the estimate for a GPU of `memory_bytes` without CUDA graphs: 1 GB each for context and communicators, and a
/// margin of 2 %. The shipped profiles have the same numbers.
[[nodiscard]] ReservedBytes reserved_on_gpu(double memory_bytes);

/// Returns `0.93 GiB for the CUDA context, 0.93 GiB for NCCL, 1.49 GiB in reserve`, without what is 0.
[[nodiscard]] std::string to_text(const ReservedBytes& reserved);

/// Kernels of a job: those of eager PyTorch, as this project's, or fused ones of a compiler or a vendor.
enum class Kernels : std::uint8_t { Eager, Fused };
template <>
inline constexpr auto kNames<Kernels> = in_order<Kernels>("eager", "fused");

/// Numbers from which device_model.h computes the times of layers, with MachineProfile::matrix_flops,
/// `memory_bandwidth` (that of copies) and `block_launch`.
struct DeviceModel {
  double products = 0;         // fraction of the peak that large products of matrices reach; 0: there is no model
  double product_size = 0;     // a product of m x k and k x n takes 1 + this (1/m + 1/k + 1/n) times as long
  double attention = 0;        // fraction of the peak that attention reaches
  double fused_attention = 0;  // the same of fused kernels
  double fused_part = 0;       // bytes and launches of fused kernels, relative to eager ones
  double fused_sums = 0;       // fraction of the time of tensor-parallel sums that fused kernels hide behind products
  friend bool operator==(const DeviceModel&, const DeviceModel&) = default;
};
inline constexpr auto kDeviceNumbers =
    std::to_array<NumberField<DeviceModel>>({{"products", &DeviceModel::products, 1, true},
                                             {"product_size", &DeviceModel::product_size, kMaxRatio, true},
                                             {"attention", &DeviceModel::attention, 1, true},
                                             {"fused_attention", &DeviceModel::fused_attention, 1, true},
                                             {"fused_part", &DeviceModel::fused_part, 1, true},
                                             {"fused_sums", &DeviceModel::fused_sums, 1, true}});

/// Errors of predicted step times over published or measured runs that fitted no number of a profile.
struct TestedErrors {
  double median = 0;  // of the absolute values of relative errors
  double low = 0;     // four fifths of the runs took 1 + `low` to 1 + `high` times the predicted time
  double high = 0;
  std::int64_t runs = 0;
  friend bool operator==(const TestedErrors&, const TestedErrors&) = default;
};

/// Properties of a machine, as the simulator needs them. A node is a host with one or several workers.
struct MachineProfile {
  std::string name = {};
  std::vector<std::string> sources = {};  // origin of the numbers: a command, or publications
  /// Cores per node that workers share, `threads` for each computing worker; 0: each worker has its own device.
  std::int64_t cores = 0;
  std::int64_t threads = 1;           // cores of a worker
  std::int64_t workers_per_node = 1;  // workers beyond this number are on further nodes
  double memory_bytes = 0;            // of each worker
  ReservedBytes reserved = {};        // bytes of memory_bytes that hold no tensors
  /// Bytes of activations relative to stage_footprint(); 1 for this project's kernels.
  double activation_scale = 1;
  /// Extra bytes that attention keeps per head and pair of tokens, before `activation_scale`; 0 for this project's
  /// kernels.
  double score_bytes = 0;
  /// Memory traffic of attention in bytes per head and pair of tokens, in a forward and again in the input gradient. If
  /// 0, time scales with FLOPs only. Needs `memory_bandwidth`.
  double score_traffic = 0;
  /// Whether the head computes the logits of all tokens in one product (also of the unmasked tokens of BERT), and keeps
  /// the log-probabilities until the backward. If not, it works in chunks, as Chimera's head does.
  bool whole_head = false;
  /// Minimum seconds of a block's forward, of its input gradient and of its weight gradient: the time in which the host
  /// launches the kernels.
  double block_launch = 0;
  DeviceModel device = {};
  Kernels kernels = Kernels::Eager;     // of the job (--kernels); not in files
  double memory_bandwidth = 0;          // bytes per second for each worker; 0: unknown
  double host_bandwidth = 0;            // bytes per second between a worker's device and host memory; 0: kHostBandwidth
  std::vector<LayerTimes> layers = {};  // measured layers, of one or several models
  LinkProfile point_to_point = {};      // messages
  LinkProfile all_reduce = {};          // all-reduces of gradients
  /// Exchange of tensors inside an op among the T ranks of a worker on one node, with the wait for the slowest rank:
  /// alpha log2(T) + beta L, for L bytes of each rank. Zeros: not measured; an all-reduce takes its place.
  LinkTimes op_sum = {};
  /// Compute time that a message of L bytes costs its sender and again its receiver, alpha + beta L: copies through
  /// host memory, or work in the network stack. Applies if workers have their own devices, or no core is free for
  /// messages.
  LinkTimes message_copy = {};
  /// `message_copy` for a message between nodes; zeros: the same as within a node.
  LinkTimes node_message_copy = {};
  /// How much ops, messages and all-reduces of a worker slow each other down if each worker has its own device or core.
  Contention contention = {};
  /// Relative increase of an all-reduce's beta per doubling of workers beyond two.
  double sum_rank_loss = 0;
  /// Relative slowdown of ops per doubling of the run's workers beyond one.
  double scale_loss = 0;
  /// Extra seconds of a message if workers share cores, because its ends wait for a core.
  double busy_delay = 0;
  /// Relative extra time of an op on the slowest core over the mean while all cores compute.
  double core_imbalance = 0;
  /// Relative slowdown of ops while more run than there are cores, because caches hold another worker's data.
  double core_sharing = 0;
  double optimizer_seconds = 0;  // seconds per parameter and update
  /// FLOP/s of a worker's products of large matrices while all workers of its node compute. Unknown types are absent.
  std::map<DataType, double> matrix_flops = {};
  double op_overhead = 0;                       // host seconds per op
  double step_overhead = 0;                     // host seconds per step
  double expected_error = 0;                    // median relative error of predicted step times; 0: unknown
  std::map<Kernels, TestedErrors> errors = {};  // by kind of kernels; replace `expected_error`

  /// Returns whether the profile has a DeviceModel. (Workers have devices of their own if `cores` is 0.)
  [[nodiscard]] bool has_device() const { return device.products > 0; }
  /// Returns whether times are those of fused kernels.
  [[nodiscard]] bool is_fused() const { return has_device() && kernels == Kernels::Fused; }
  /// Returns the fraction of the peak FLOP/s that attention reaches.
  [[nodiscard]] double attention_share() const { return is_fused() ? device.fused_attention : device.attention; }
  /// Returns the bytes and launches of the kernels, relative to eager kernels.
  [[nodiscard]] double fused_part() const { return is_fused() ? device.fused_part : 1; }
  friend bool operator==(const MachineProfile&, const MachineProfile&) = default;
};
inline constexpr auto kMachineNumbers = std::to_array<NumberField<MachineProfile>>(
    {{"busy_delay", &MachineProfile::busy_delay, kMaxSeconds},
     {"core_imbalance", &MachineProfile::core_imbalance, kMaxRatio},
     {"core_sharing", &MachineProfile::core_sharing, kMaxRatio},
     {"memory_bandwidth", &MachineProfile::memory_bandwidth, kMaxBytes},
     {"host_bandwidth", &MachineProfile::host_bandwidth, kMaxBytes},
     {"sum_rank_loss", &MachineProfile::sum_rank_loss, kMaxRatio},
     {"scale_loss", &MachineProfile::scale_loss, kMaxRatio},
     {"optimizer_seconds", &MachineProfile::optimizer_seconds, kMaxSeconds, true},
     {"op_overhead", &MachineProfile::op_overhead, kMaxSeconds, true},
     {"step_overhead", &MachineProfile::step_overhead, kMaxSeconds, true},
     {"expected_error", &MachineProfile::expected_error, kMaxRatio}});

/// Bytes per second between device and host memory if a profile does not say: four fifths of the rate of 16 lanes of
/// PCI Express 4.0 (16 GT/s a lane, 128b/130b; PCI-SIG).
inline constexpr double kHostBandwidth = 25e9;

/// Returns the total FLOP/s of products of large matrices for workers with `threads` cores each on a single node,
/// limited by its cores; 0 if unknown.
[[nodiscard]] double matrix_peak(const MachineProfile& machine, DataType dtype, std::int64_t workers,
                                 std::int64_t threads);

/// Returns seconds of an all-reduce of `bytes` over `copies` workers, including `sum_rank_loss`; 0 for one copy.
[[nodiscard]] double sum_seconds(const MachineProfile& machine, const LinkTimes& link, std::int64_t copies,
                                 double bytes);

/// Returns the times of an all-reduce among devices of several nodes, `near` devices on each. Each device of a node
/// sends an equal part between the nodes; they share the network interface (Contention::node_transfers).
[[nodiscard]] LinkTimes link_of_rings(const MachineProfile& machine, std::int64_t near);

/// Reads a profile (docs/machine_profile.md); `-` is standard input. Throws ConfigError, with file and field, if a
/// field is missing, unknown, duplicate, negative, not finite or implausibly large (above 10^9 seconds or 10^18 bytes).
[[nodiscard]] MachineProfile read_machine(const std::string& path);
/// Reads a profile from `text`; error messages name `source`. Throws as read_machine() does.
[[nodiscard]] MachineProfile machine_from_json(const std::string& text, const std::string& source);

/// Returns JSON that read_machine() reads back to the same value (with `layers` of every model set to 1).
[[nodiscard]] std::string to_json(MachineProfile machine);

/// Visits the list `times`, which has at least one entry, with ascending micro-batch sizes.
void visit_times(JsonFields& json, std::vector<LayerTime>& times);

/// Visits `alpha`, `beta` and the optional `burst`.
void visit_link(JsonFields& json, LinkTimes& link);

}  // namespace chimera

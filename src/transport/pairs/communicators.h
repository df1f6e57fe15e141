#pragma once

// The communicators of a rank on GPUs, and the settings that keep them from deadlock. A communicator (of NCCL) connects
// a set of ranks; a rank has one for all ranks, one per parameter group, and two per rank with which it exchanges
// messages. Kernels of NCCL occupy multiprocessors while they wait, so their number and size are limited (BlockLimits),
// and all ranks create them in one order. This header also compares ranks before they connect, and has the environment
// variables of CUDA and NCCL. src/cuda calls the functions, which need no GPU themselves.

#include <ATen/core/Tensor.h>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "core/rendezvous_point.h"
#include "transport/connection_breaker.h"
#include "transport/fingerprint.h"
#include "transport/groups.h"
#include "transport/transport.h"

namespace chimera {

/// Properties of a rank that compare_ranks() compares at rendezvous.
struct RankIdentity {
  int rank = 0;
  Fingerprint fingerprint = {};  ///< empty: not compared
  std::string gpu = {};          ///< GpuTraits::uuid; empty: not compared
};

/// Compares the RankIdentity of all ranks. Collective. Throws the errors of require_equal() (transport/fingerprint.h).
/// If ranks share a GPU, throws ConfigError on them and PeerLostError on the others.
void compare_ranks(c10d::Store& store, const RankIdentity& own, int world_size);

/// Returns the minimum of `number` over all ranks, such as the multiprocessors of the smallest GPU. Collective; call it
/// once per store.
[[nodiscard]] int minimum_over_ranks(c10d::Store& store, int rank, int number, int world_size);

/// Environment variables (name, value).
using VariableList = std::vector<std::pair<std::string, std::string>>;

/// Returns variables that give streams separate hardware queues, and let the memory segments of PyTorch's allocator
/// grow. Segments that grow leave fewer fragments, and to free one waits only for a stream, not for the whole GPU
/// (CUDACachingAllocator.cpp, ExpandableSegment::unmapHandles).
[[nodiscard]] VariableList cuda_variables();

/// Returns variables that make NCCL listen only on the rendezvous interface (loopback on one host, else
/// own_interface()). If `outlives_peers`, c10d must not end this process when NCCL loses a peer.
[[nodiscard]] VariableList nccl_variables(const RendezvousPoint& rendezvous, bool outlives_peers = false);

/// Returns the variables for CUDA graphs, to be set before cuda_variables().
/// - They switch off NCCL's graph mixing, with which launches of graphs with several communicators can deadlock. An
///   operation outside of a graph must then not be launched before the graphs with its communicator have completed, so
///   each step first waits for its graph.
/// - They switch off the registration of captured buffers. It would exchange data between hosts during the capture
///   (nvls.cc, ncclShmemAllgather), and other processes cannot map memory of cudaMalloc (p2p.cc, ipcRegisterBuffer).
/// - They let PyTorch's allocator reuse, within a capture, blocks that several streams have used
///   (CUDACachingAllocator.cpp, free_safe_blocks_in_capture).
[[nodiscard]] VariableList graph_variables();

/// Sets the variables that would override block_limits(), also from nccl.conf, to NCCL's defaults. Returns a line that
/// names the user's values, or an empty text.
[[nodiscard]] std::string keep_block_limits();

/// Returns the first line of the message and the lines behind NCCL's "Last error:", which name the cause, as one line.
[[nodiscard]] std::string error_line(const c10::Error& error);

/// Returns the variables that make results of cuBLAS equal on any stream (cuBLAS manual, Results Reproducibility), and
/// keep NCCL from adding in the NVLink switch (NVLS), which has an order of its own.
[[nodiscard]] VariableList deterministic_variables();

/// Returns whether CHIMERA_SHARE_GPU=1 lets several ranks use one GPU, to try NCCL on a machine with one. NCCL then
/// sends through sockets, and the GPU runs one rank at a time.
[[nodiscard]] bool ranks_share_gpus();

/// Sets the environment variables that are not set yet. No other thread may read the environment meanwhile.
void set_unless_set(const VariableList& variables);

/// Makes torch compute matrix products with cuBLASLt, which can leave multiprocessors free for NCCL
/// (pair_transport.cc). Throws c10::Error if LibTorch has no CUDA.
void prefer_cublaslt_for_products();

/// Process groups of a rank, all connected.
struct Communicators {
  using Group = c10::intrusive_ptr<c10d::Backend>;
  /// One communicator per direction; the lower rank is member 0.
  struct Pair {
    Group out = {};  // sends to the peer
    Group in = {};   // receives from the peer
  };
  std::shared_ptr<void> keep = {};  // keeps the groups' resources alive
  int rank = 0;
  at::Device device = at::kCPU;    // device of messages and gradients
  std::map<int, Pair> pairs = {};  // by peer
  RankGroups groups = {};
  std::vector<Group> process_groups = {};  // by parameter group; null if this rank is not a member, or the only one
  Group everyone = {};                     // null for a single rank
  bool sums_in_order = false;              // whether sums have a GradientSum::order
  int message_blocks = 0;                  // multiprocessors that waiting sends and receives hold
  /// Sends all matrix products through cuBLASLt; called if products must leave multiprocessors to messages.
  std::function<void()> prefer_cublaslt = prefer_cublaslt_for_products;
  /// Least timeout of an operation (Transport::note_longest_step). c10d's default for NCCL is 10 minutes.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Called after each group of this rank is connected, which can take seconds. May be empty.
  std::function<void()> on_group_connected = {};
  /// Called once all ranks have connected all groups. May be empty.
  std::function<void()> connected = {};
  /// With it, another thread can abort all groups, so that this rank outlives the loss of another one. May be null.
  std::shared_ptr<ConnectionBreaker> breaker = nullptr;
  /// Called at the transport's end; may be empty. If `has_failed`, pending operations must be aborted.
  std::function<void(bool has_failed)> end = {};
};

/// Options of a rank that joins the others over NCCL, one GPU per rank.
struct NcclOptions {
  int rank = 0;
  int world_size = 1;
  int gpu = 0;  ///< index among the GPUs visible to this process
  RendezvousPoint rendezvous = {};
  RankGroups groups = {};            ///< [parameter group]: ranks that sum its gradients
  std::vector<RankPair> pairs = {};  ///< ascending; equal on all ranks
  bool sums_in_order = false;        ///< whether sums have a GradientSum::order (--reduction canonical)
  bool has_early_sums = false;       ///< whether all-reduces of gradients start while ops still run
  /// Groups from this one on sum inside ops (tensor parallelism).
  std::size_t first_op_group = std::numeric_limits<std::size_t>::max();
  Fingerprint fingerprint = {};  ///< compared before ranks connect, unless empty
  std::chrono::milliseconds start_up_timeout = std::chrono::minutes(2);  ///< limit of each rendezvous step
  /// If an operation takes longer and there is no breaker, the process ends. NCCL cannot name the rank that is late.
  /// Slow steps extend the limit (Transport::note_longest_step()).
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  std::function<void()> on_group_connected = {};         ///< called after each communicator is connected (seconds each)
  std::shared_ptr<ConnectionBreaker> breaker = nullptr;  ///< lets another thread abort all communicators; may be null
};

/// Numbers of communicators that a rank needs, each the maximum over all ranks.
struct CommunicatorCount {
  int of_pairs = 0;                                                   ///< one per direction
  int of_groups = 0;                                                  ///< includes `of_ops`
  int of_ops = 0;                                                     ///< of groups that sum inside ops
  [[nodiscard]] int all() const { return of_pairs + of_groups + 1; }  ///< includes the communicator of all ranks
};

/// Returns the numbers of communicators that a rank needs.
[[nodiscard]] CommunicatorCount communicators_of_a_rank(const NcclOptions& options);

/// Each communicator of a rank takes one of PyTorch's 32 high-priority streams (c10/cuda/CUDAStream.h); one is left to
/// other code. On a shared stream, a waiting receive would block other communicators.
inline constexpr int kMaxCommunicators = 31;

/// Maximum number of thread blocks of a group whose sums start while ops run: more waiting blocks would slow the ops
/// down by more than the sums gain.
inline constexpr int kBlocksOfEarlySums = 8;

/// Maximum numbers of thread blocks of a communicator. Each waiting block occupies a multiprocessor.
struct BlockLimits {
  int everyone = 1;  ///< communicator of all ranks, whose sums are small
  int group = 16;    ///< communicator of a parameter group
  int pair = 2;      ///< communicator of one direction between two ranks
  int op = 32;       ///< communicator of a group that sums inside ops, which wait for it
  /// Returns the maximum number of multiprocessors that a rank's communicators occupy at once.
  [[nodiscard]] int held(const CommunicatorCount& count) const {
    return everyone + group * (count.of_groups - count.of_ops) + op * count.of_ops + pair * count.of_pairs;
  }
};

/// Returns limits so that a rank's communicators occupy at most half of the multiprocessors; the work that they wait
/// for needs the rest. Groups get at least as many blocks as pairs. Limits are powers of two, because NCCL rounds them,
/// and must be equal on all ranks. Throws ConfigError if a rank has more than kMaxCommunicators, or if one block per
/// communicator exceeds the half.
[[nodiscard]] BlockLimits block_limits(const NcclOptions& options, int multiprocessors);

/// A communicator to create.
struct NewCommunicator {
  std::string name = {};  ///< unique, equal on its members
  int member = 0;         ///< index of this rank
  int size = 0;
  int blocks = 0;  ///< from BlockLimits
};

/// Creates one communicator. Waits for its other members.
using MakeGroup = std::function<Communicators::Group(const NewCommunicator&)>;
/// Creates all communicators of a rank with `make_group`. All ranks create them in the same order, to prevent
/// deadlocks: everyone, parameter groups, pairs ascending, each from the lower to the higher rank first.
[[nodiscard]] Communicators make_communicators(const NcclOptions& options, const BlockLimits& limits,
                                               const MakeGroup& make_group);

/// Returns the groups of a rank in the order of make_communicators(), without null pointers.
[[nodiscard]] std::vector<Communicators::Group> all_groups(const Communicators& of);

/// Aborts all groups at the same time, each on a thread of its own. Ignores exceptions. If they were aborted one after
/// another, they could deadlock, because NCCL frees memory only when the kernels of other communicators have ended.
void abort_together(const std::vector<Communicators::Group>& groups);

}  // namespace chimera

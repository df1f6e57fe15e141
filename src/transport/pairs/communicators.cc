#include "transport/pairs/communicators.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <limits>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "core/reject.h"
#include "rendezvous/address.h"

// Three subjects, each a few functions: what ranks compare before they connect (compare_ranks()), environment variables
// of CUDA and NCCL (*_variables(), keep_block_limits()), and the communicators with their limits (block_limits(),
// make_communicators()). src/cuda/accelerator.cc connects a rank with them.

namespace chimera {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kWordsBytes = (1 + kFingerprintParts) * sizeof(std::int64_t);

/// Sets this rank's text under `name`. Returns the texts of all ranks. Collective.
std::vector<std::string> exchange(c10d::Store& store, const char* name, int rank, int world_size,
                                  const std::string& own) {
  const auto key = [&](int of) { return fmt::format("{} {}", name, of); };
  store.set(key(rank), Bytes(own.begin(), own.end()));
  std::vector<std::string> texts;
  for (int other = 0; other < world_size; ++other) {
    const Bytes bytes = store.get(key(other));
    texts.emplace_back(bytes.begin(), bytes.end());
  }
  return texts;
}

/// NCCL refuses two ranks on one GPU, too, but does not name the ranks.
void require_own_gpu(const std::vector<std::string>& gpus, int rank) {
  std::vector<int> sharing;
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    // Ranks that may share a GPU (CHIMERA_SHARE_GPU) send no id.
    if (!gpus[r].empty() && std::ranges::count(gpus, gpus[r]) > 1) sharing.push_back(static_cast<int>(r));
  }
  if (sharing.empty()) return;
  const bool is_own = std::ranges::count(sharing, rank) > 0;
  const std::string what = fmt::format("ranks {} do not have a GPU each", fmt::join(sharing, ", "));
  if (!is_own) throw PeerLostError(what);
  throw ConfigError(what +
                    "; start as many processes on a host as it has GPUs, and make all GPUs or one GPU of its own "
                    "visible to each process");
}

void configure_allocator(VariableList& variables, const std::string& setting) {
  if (std::getenv("PYTORCH_ALLOC_CONF") != nullptr) return;  // PyTorch reads one of two names
  variables.emplace_back("PYTORCH_CUDA_ALLOC_CONF", setting);
}

using Group = Communicators::Group;

void require_few(const CommunicatorCount& count, int multiprocessors) {
  const auto refuse = [&](const std::string& why) {
    reject(
        "--device cuda: a rank would have {} communicators ({} for messages, {} for sums), more than {}; use fewer "
        "stages a rank, or --transport threads",
        count.all(), count.of_pairs, count.of_groups, why);
  };
  if (count.all() > kMaxCommunicators) refuse(fmt::format("the {} that get streams of their own", kMaxCommunicators));
  if (count.all() > multiprocessors / 2) {
    refuse(fmt::format("half of the GPU's {} multiprocessors, of which each occupies one while it waits",
                       multiprocessors));
  }
}

}  // namespace

// The text is the fingerprint's words, which have one length in every build, and then the GPU's id.
void compare_ranks(c10d::Store& store, const RankIdentity& own, int world_size) {
  const FingerprintWords words = to_words(own.fingerprint);
  const std::string text(reinterpret_cast<const char*>(words.data()), kWordsBytes);
  std::vector<FingerprintWords> of_ranks;
  std::vector<std::string> gpus;
  for (const std::string& theirs : exchange(store, "attendee", own.rank, world_size, text + own.gpu)) {
    if (theirs.size() < kWordsBytes)
      throw TransportError("a rank runs another build of chimera; start the same build on every host");
    std::memcpy(of_ranks.emplace_back(1 + kFingerprintParts).data(), theirs.data(), kWordsBytes);
    gpus.push_back(theirs.substr(kWordsBytes));
  }
  if (!own.fingerprint.empty()) require_equal(own.fingerprint, of_ranks, own.rank);
  require_own_gpu(gpus, own.rank);
}

int minimum_over_ranks(c10d::Store& store, int rank, int number, int world_size) {
  for (const std::string& other : exchange(store, "number", rank, world_size, std::to_string(number)))
    number = std::min(number, std::stoi(other));
  return number;
}

VariableList cuda_variables() {
  // More streams share hardware queues, so a waiting receive blocks other work.
  VariableList variables = {{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}};
  configure_allocator(variables, "expandable_segments:True");
  return variables;
}

// On one host NCCL needs no interface but the loopback, and must not listen on any other.
VariableList nccl_variables(const RendezvousPoint& rendezvous, bool outlives_peers) {
  const std::string interface = rendezvous.host.empty() ? "lo" : own_interface(rendezvous);
  VariableList variables = {{"NCCL_SOCKET_IFNAME", "=" + interface},  // exact name, not a prefix
                            {"NCCL_RAS_ENABLE", "0"},                 // its port is open to anyone
                            // c10d would warn at each rank's first message
                            {"TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "0"}};
  if (outlives_peers) {
    // Its watchdog would also sleep a minute for others to dump information
    variables.insert(variables.end(), {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
                                       {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"},
                                       {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0"}});
  }
  return variables;
}

VariableList graph_variables() {
  VariableList variables = {// Mixing can deadlock launches of graphs with several communicators.
                            {"NCCL_GRAPH_MIXING_SUPPORT", "0"},
                            {"NCCL_GRAPH_REGISTER", "0"},
                            // c10d's recorder would keep an event of each recorded operation
                            {"TORCH_FR_BUFFER_SIZE", "0"}};
  configure_allocator(variables, "graph_capture_record_stream_reuse:True");
  return variables;
}

// NCCL's own values for "not set" (graph/connect.cc, graph/paths.cc, init.cc), which nccl.conf cannot replace.
std::string keep_block_limits() {
  const std::string unset = std::to_string(std::numeric_limits<int>::min());
  std::vector<std::string> replaced;
  for (const auto& [name, value] : VariableList{{"NCCL_MIN_NCHANNELS", "-2"},
                                                {"NCCL_MIN_NRINGS", "-2"},
                                                {"NCCL_MIN_P2P_NCHANNELS", "1"},
                                                {"NCCL_MIN_CTAS", unset},
                                                {"NCCL_MAX_CTAS", unset}}) {
    const char* before = std::getenv(name.c_str());
    if (before != nullptr && before != value) replaced.push_back(fmt::format("{}={}", name, before));
    ::setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  }
  if (replaced.empty()) return {};
  return fmt::format("{} ignored: waiting kernels of NCCL could then occupy the whole GPU", fmt::join(replaced, ", "));
}

VariableList deterministic_variables() {
  return {{"CUBLAS_WORKSPACE_CONFIG", ":4096:8"}, {"NCCL_ALGO", "^NVLS,NVLSTree"}};
}

std::string error_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  std::istringstream lines(text);
  std::string line;
  std::string all;
  for (bool is_cause = true; std::getline(lines, line); is_cause = is_cause || line.starts_with("Last error")) {
    if (!is_cause || line.empty()) continue;
    if (all.empty()) is_cause = false;
    all += (all.empty() ? "" : "; ") + line;
  }
  return all;
}

void prefer_cublaslt_for_products() { at::globalContext().setBlasPreferredBackend(at::BlasBackend::Cublaslt); }

bool ranks_share_gpus() {
  const char* value = std::getenv("CHIMERA_SHARE_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

void set_unless_set(const VariableList& variables) {
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
}

// The largest numbers over all ranks, since the limits that follow from them must be equal on all ranks.
CommunicatorCount communicators_of_a_rank(const NcclOptions& options) {
  CommunicatorCount most;
  for (int rank = 0; rank < options.world_size; ++rank) {
    const auto pairs = std::ranges::count_if(
        options.pairs, [&](const RankPair& pair) { return pair.first == rank || pair.second == rank; });
    int groups = 0;
    int ops = 0;
    for (std::size_t g = 0; g < options.groups.size(); ++g) {
      if (options.groups[g].size() < 2 || std::ranges::count(options.groups[g], RankId(rank)) == 0) continue;
      ++groups;
      if (g >= options.first_op_group) ++ops;
    }
    most.of_pairs = std::max(most.of_pairs, 2 * static_cast<int>(pairs));
    most.of_groups = std::max(most.of_groups, groups);
    most.of_ops = std::max(most.of_ops, ops);
  }
  return most;
}

// Half of the multiprocessors is the room for communicators that wait. Messages are small and on the critical path, so
// pairs keep their two blocks as long as a group still gets as many; the groups share what is left, as powers of two.
BlockLimits block_limits(const NcclOptions& options, int multiprocessors) {
  BlockLimits limits;
  if (options.has_early_sums) limits.group = kBlocksOfEarlySums;
  const CommunicatorCount most = communicators_of_a_rank(options);
  require_few(most, multiprocessors);
  int room = multiprocessors / 2 - limits.everyone;
  const int others = most.of_groups - most.of_ops;
  // An op's sum is on the critical path, so it gets half of the room if the others need no more than the rest.
  if (most.of_ops > 0) {
    limits.op = std::min(limits.op, static_cast<int>(std::bit_floor(static_cast<unsigned>(room / 2 / most.of_ops))));
    while (limits.op > 1 && room - limits.op * most.of_ops < most.of_pairs + others) limits.op /= 2;
    limits.op = std::max(limits.op, 1);
    room -= limits.op * most.of_ops;
  }
  const auto left_for_a_group = [&](int of_a_pair) {
    const int left = std::max(room - most.of_pairs * of_a_pair, 0);
    if (others == 0) return left > 0 ? limits.group : 0;
    return static_cast<int>(std::bit_floor(static_cast<unsigned>(left / others)));
  };
  // Example: 132 multiprocessors leave a room of 65; a rank with 8 channels and 2 groups keeps 2 blocks per channel, so
  // that 49 are left, and each group gets the largest power of two in 24, which is 16.
  while (limits.pair > 1 && left_for_a_group(limits.pair) < limits.pair) limits.pair /= 2;
  limits.group = std::clamp(left_for_a_group(limits.pair), 1, limits.group);
  return limits;
}

Communicators make_communicators(const NcclOptions& options, const BlockLimits& limits, const MakeGroup& make_group) {
  Communicators to{.rank = options.rank,
                   .groups = options.groups,
                   .sums_in_order = options.sums_in_order,
                   .timeout = options.timeout,
                   .on_group_connected = options.on_group_connected,
                   .breaker = options.breaker};
  const auto make = [&](const NewCommunicator& wanted) {
    Group group = make_group(wanted);
    if (options.on_group_connected) options.on_group_connected();
    return group;
  };
  to.process_groups.resize(options.groups.size());
  if (options.world_size == 1) return to;
  to.everyone =
      make({.name = "everyone", .member = options.rank, .size = options.world_size, .blocks = limits.everyone});
  for (std::size_t g = 0; g < options.groups.size(); ++g) {
    const auto& members = options.groups[g];
    const auto place = std::find(members.begin(), members.end(), RankId(options.rank));
    if (place == members.end() || members.size() == 1) continue;
    to.process_groups[g] = make({.name = fmt::format("group{}", g),
                                 .member = static_cast<int>(place - members.begin()),
                                 .size = static_cast<int>(members.size()),
                                 .blocks = g < options.first_op_group ? limits.group : limits.op});
  }
  for (const auto& [low, high] : options.pairs) {
    if (options.rank != low && options.rank != high) continue;
    const bool is_low = options.rank == low;
    const auto connect = [&](int from, int receiver) {
      return make({.name = fmt::format("pair{}-{}", from, receiver),
                   .member = is_low ? 0 : 1,
                   .size = 2,
                   .blocks = limits.pair});
    };
    Group up = connect(low, high);
    Group down = connect(high, low);
    if (!is_low) std::swap(up, down);
    to.pairs[is_low ? high : low] = {.out = std::move(up), .in = std::move(down)};
  }
  to.message_blocks = 2 * limits.pair * static_cast<int>(to.pairs.size());
  return to;
}

// In the order of creation, since calls that connect or abort must have one order on all ranks.
std::vector<Group> all_groups(const Communicators& of) {
  std::vector<Group> groups{of.everyone};
  groups.insert(groups.end(), of.process_groups.begin(), of.process_groups.end());
  for (const auto& [peer, pair] : of.pairs) {
    groups.push_back(of.rank < peer ? pair.out : pair.in);
    groups.push_back(of.rank < peer ? pair.in : pair.out);
  }
  std::erase_if(groups, [](const Group& group) { return !group; });
  return groups;
}

void abort_together(const std::vector<Group>& groups) {
  std::vector<std::future<void>> aborts;
  for (const Group& group : groups) aborts.push_back(std::async(std::launch::async, [&group] { group->abort(); }));
  for (auto& abort : aborts) {
    try {
      abort.get();
    } catch (const std::exception&) {  // the other aborts continue
    }
  }
}

}  // namespace chimera

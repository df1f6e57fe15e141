#include "transport/gloo/connections.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <exception>
#include <future>
#include <iostream>
#include <iterator>
#include <map>
#include <random>
#include <streambuf>
#include <string_view>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "core/error.h"
#include "core/fault_point.h"
#include "core/mapped.h"
#include "core/signals.h"
#include "rendezvous/address.h"

// The order of connecting is the order of connect_groups(): every step creates process groups, which block until their
// members do the same, so all ranks must take the steps in one order. close() and abandon() at the end are the two ways
// out after a failure. close() needs a ConnectionBreaker and leaves a process that can connect again; abandon() leaves
// everything to the end of the process. The destructor alone would wait for operations that never end.

namespace chimera {
namespace {

/// Matches "[/path/debug_logger.cc:9] ERROR failed to connect, ..." and "[E1123 ... ProcessGroupGloo.cpp:67] Gloo
/// connectFullMesh failed with ...".
bool is_connect_log(std::string_view line) {
  const auto says = [line](std::string_view words) { return line.find(words) != std::string_view::npos; };
  return line.starts_with('[') && says("/gloo/") && (says("failed to connect") || says("connectFullMesh failed"));
}

/// Forwards all output except those lines; each arrives in one write.
class WithoutConnectLog : public std::streambuf {
 public:
  explicit WithoutConnectLog(std::streambuf* to) : to_(to) {}

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const bool dropped = is_connect_log({text, static_cast<std::size_t>(size)});
    return dropped ? size : to_->sputn(text, size);
  }
  int_type overflow(int_type character) override { return to_->sputc(traits_type::to_char_type(character)); }
  int sync() override { return to_->pubsync(); }

 private:
  std::streambuf* to_;
};

using c10d::ProcessGroupGloo;

constexpr auto kLeaveTimeout = std::chrono::seconds(3);
constexpr auto kMaxClosing = std::chrono::milliseconds(100);
constexpr auto kBetweenBreaks = std::chrono::milliseconds(1);

}  // namespace

// The thread has background priority: it spins while another thread holds a connection's lock, and must not preempt
// that thread for a time slice (4 ms).
std::shared_ptr<gloo::transport::Device> gloo_device(const std::string& address) {
  const BackgroundThreads events;
  try {
    const std::string loopback = "127.0.0.1";
    if (address.empty()) static_cast<void>(own_interface({.host = loopback, .port = 9}));  // else Gloo waits for long
    return c10d::ProcessGroupGloo::createDeviceForHostname(address.empty() ? loopback : address);
  } catch (const std::system_error&) {
    throw;
  } catch (const std::exception&) {
    throw TransportError(
        address.empty() ? "the loopback interface is down or has no address; bring it up: ip link set lo up"
                        : fmt::format("cannot listen at {}; give an --interface of this host that is up", address));
  }
}

// Counts the sockets of the busiest rank: its neighbors in the tree, two channels per peer that it exchanges messages
// with, and the other members of its sums, twice if a sum has a group on the host and one over the hosts.
std::int64_t gloo_descriptors(std::int64_t world_size, const RankGroups& groups, const std::vector<RankPair>& pairs) {
  constexpr std::int64_t kCommon = 8;  // listener, epoll, its pipe, store, temporary files
  constexpr std::int64_t kTree = 1 + kTreeBranches;
  constexpr std::int64_t kDirections = 2;
  constexpr std::int64_t kLevels = 2;  // groups of a sum over several hosts
  if (world_size == 1) return 0;
  std::vector<std::int64_t> sockets(static_cast<std::size_t>(world_size), kTree);  // [rank]
  for (const auto& [low, high] : pairs) {
    sockets[static_cast<std::size_t>(low)] += kDirections;
    sockets[static_cast<std::size_t>(high)] += kDirections;
  }
  for (const auto& group : groups)
    for (const RankId rank : group) sockets[rank.index()] += kLevels * (static_cast<std::int64_t>(group.size()) - 1);
  return kCommon + *std::ranges::max_element(sockets);
}

void drop_connect_log() {
  // Never destroyed: Gloo's threads may write until the process ends.
  [[maybe_unused]] static const std::streambuf* const replaced =
      std::cerr.rdbuf(new WithoutConnectLog(std::cerr.rdbuf()));
}

GlooConnections::GlooConnections(const GlooOptions& options)
    : options_(options),
      rendezvous_(options.rendezvous, options.start_up_timeout, options.breaker),
      tree_(options.breaker),
      process_groups_(options.groups.size()),
      sum_groups_(options.groups.size()) {}

void GlooConnections::join() {
  fault_point("rendezvous");
  if (options_.world_size > 1) {
    drop_connect_log();
    connect_groups();
    if (options_.share_memory) find_shared_memory();
    tree_.barrier(options_.start_up_timeout);
    rendezvous_.stop_accepting();
  }
  fault_point("connected");
}

// Creating a group waits for its members, so the order must be compatible on all ranks. Until fingerprints are
// compared, only the number of ranks matters.
void GlooConnections::connect_groups() {
  rendezvous_.await_all(options_.rank, options_.world_size);
  device_ = options_.device ? options_.device : gloo_device(rendezvous_.own_address());
  tree_.connect(options_.rank, options_.world_size, [this](int other) { return create_pair("tree", other); });
  if (!options_.fingerprint.empty()) compare(options_.fingerprint);
  // A channel per direction: in a shared group Gloo's thread would spin on the lock of a preempted sender.
  for (const auto& [low, high] :
       connecting_order(options_.rank, options_.pairs ? *options_.pairs : all_pairs(options_.world_size))) {
    const int other = options_.rank == low ? high : low;
    channels_[{low, high}] = create_pair(fmt::format("{} to {}", low, high), other);
    channels_[{high, low}] = create_pair(fmt::format("{} to {}", high, low), other);
  }
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const auto& group = options_.groups[g];
    const auto place = std::find(group.begin(), group.end(), RankId(options_.rank));
    if (place == group.end() || group.size() == 1) continue;
    process_groups_[g] =
        create(fmt::format("group{}", g), static_cast<int>(place - group.begin()), group.size(), /*threads=*/1);
  }
}

GlooGroup GlooConnections::create(const std::string& name, int rank, std::size_t size, int threads) {
  // A connection created while others are broken would hang.
  if (options_.breaker && options_.breaker->is_broken())
    throw PeerLostError("another rank was lost before all ranks had connected");
  auto group_options = ProcessGroupGloo::Options::create(options_.start_up_timeout);
  group_options->devices.push_back(device_);
  // Each thread runs one collective at a time. Sends and receives need none: the device's thread serves them.
  group_options->threads = threads;
  return c10::make_intrusive<ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, rendezvous_.store()), rank,
                                               static_cast<int>(size), group_options);
}

GlooGroup GlooConnections::create_pair(const std::string& name, int other) {
  const auto [low, high] = std::minmax(options_.rank, other);
  return create(fmt::format("{} {}-{}", name, low, high), index_in_pair(options_.rank, other), 2,
                /*threads=*/0);
}

/// Compares settings before any other connection exists: ranks with other settings may connect other pairs, and hang.
void GlooConnections::compare(const Fingerprint& own) {
  FingerprintWords words = to_words(own);
  const auto size = static_cast<std::int64_t>(words.size());
  const at::Tensor all = tree_.gather(at::from_blob(words.data(), {size}, at::kLong), options_.start_up_timeout);
  std::vector<FingerprintWords> of_ranks;
  for (std::int64_t rank = 0; rank < options_.world_size; ++rank) {
    const std::int64_t* row = all[rank].const_data_ptr<std::int64_t>();
    of_ranks.emplace_back(row, row + size);
  }
  require_equal(own, of_ranks, options_.rank);
}

/// Returns [group][member]: whether this rank can map the member's memory. The barrier keeps the memory until all have
/// tried.
std::vector<std::vector<bool>> GlooConnections::mapped_members() {
  const SharedMemory memory(sizeof(std::int64_t));
  const SharedAddress own = memory.address();
  // 64 random bits, so that no other file can have the mark by accident.
  std::random_device random;
  const auto mark = static_cast<std::int64_t>((std::uint64_t{random()} << 32U) | random());
  std::memcpy(memory.data(), &mark, sizeof mark);
  const at::Tensor all =
      tree_.gather(at::tensor({own.process, own.descriptor, own.file, mark}, at::kLong), options_.start_up_timeout);
  std::vector<std::vector<bool>> mapped(options_.groups.size());
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    if (!process_groups_[g]) continue;
    for (const RankId member : options_.groups[g]) {
      const auto* word = all[member.value()].const_data_ptr<std::int64_t>();
      const bool is_near = options_.hosts.empty() ||
                           options_.hosts[member.index()] == options_.hosts[static_cast<std::size_t>(options_.rank)];
      mapped[g].push_back(is_near && can_map({word[0], word[1], word[2]}, word[3]));
    }
  }
  tree_.barrier(options_.start_up_timeout);
  return mapped;
}

// A host is a set of members that can map each other's memory, identified by the first.
//
// There are three steps, each with a message over the tree. Every rank tries to map a marked file of every other
// member. It then tells all ranks its host. A mapping that contradicts the hosts, as in containers that share some
// namespaces, makes all members give up shared memory for that group, since they must choose the same kind of sum.
void GlooConnections::find_shared_memory() {
  const auto are_mapped = mapped_members();
  const auto count = static_cast<std::int64_t>(options_.groups.size());
  const at::Tensor own = at::full({count}, -1, at::kLong);
  for (std::size_t g = 0; g < are_mapped.size(); ++g) {
    const auto first = std::ranges::find(are_mapped[g], true);
    if (first == are_mapped[g].end()) continue;
    own.data_ptr<std::int64_t>()[g] =
        options_.groups[g][static_cast<std::size_t>(first - are_mapped[g].begin())].value();
  }
  const at::Tensor all = tree_.gather(own, options_.start_up_timeout);  // [rank][group]: host
  const auto host_of = [&](RankId rank, std::size_t g) {
    return RankId(all[rank.value()].const_data_ptr<std::int64_t>()[g]);
  };
  std::vector<double> unclear(options_.groups.size(), 0);  // [group]: nonzero if a mapping contradicts the hosts
  for (std::size_t g = 0; g < are_mapped.size(); ++g) {
    for (std::size_t m = 0; m < are_mapped[g].size(); ++m) {
      const bool is_near = host_of(options_.groups[g][m], g) == host_of(RankId(options_.rank), g);
      if (are_mapped[g][m] != is_near) unclear[g] = 1;
    }
  }
  tree_.sum(unclear, options_.start_up_timeout);
  for (std::size_t g = 0; g < are_mapped.size(); ++g) {
    if (are_mapped[g].empty() || unclear[g] > 0) continue;
    connect_sums(g, mapped<RankId>(options_.groups[g], [&](RankId member) { return host_of(member, g); }));
  }
}

/// Chooses the groups of a sum in shared memory. On several hosts it needs the same number of members on each: the
/// members at one place of every host then own the same slice, and exchange it. `hosts` is [member].
void GlooConnections::connect_sums(std::size_t group, const std::vector<RankId>& hosts) {
  const auto& members = options_.groups[group];
  // Hosts ascend, and the members of each keep their order, so that all members compute the same places.
  std::map<RankId, std::vector<RankId>> members_of;  // [host]
  for (std::size_t m = 0; m < members.size(); ++m) members_of[hosts[m]].push_back(members[m]);
  if (members_of.size() == 1) {
    sum_groups_[group].host = process_groups_[group];
    return;
  }
  const RankId self(options_.rank);
  const RankId own_host = hosts[static_cast<std::size_t>(std::ranges::find(members, self) - members.begin())];
  const auto& near = members_of.at(own_host);
  if (near.size() == 1 ||
      std::ranges::any_of(members_of, [&](const auto& host) { return host.second.size() != near.size(); }))
    return;
  const auto place = static_cast<int>(std::ranges::find(near, self) - near.begin());
  const auto host = static_cast<int>(std::distance(members_of.begin(), members_of.find(own_host)));
  // Members at one place of their hosts form the group of counterparts: with the hosts {0, 1} and {2, 3}, these are {0,
  // 2} and {1, 3}.
  std::vector<std::size_t> places_of_sum;
  for (const auto& [first, of_host] : members_of) {
    const RankId counterpart = of_host[static_cast<std::size_t>(place)];
    places_of_sum.push_back(static_cast<std::size_t>(std::ranges::find(members, counterpart) - members.begin()));
  }
  sum_groups_[group] = {
      .host = create(fmt::format("group{} host{}", group, own_host.value()), place, near.size(), /*threads=*/1),
      .counterparts = create(fmt::format("group{} place{}", group, place), host, members_of.size(), /*threads=*/1),
      .places_of_sum = std::move(places_of_sum)};
}

c10d::ProcessGroupGloo& GlooConnections::channel(int from, int to) const {
  const auto found = channels_.find({from, to});
  if (found != channels_.end()) return *found->second;
  throw TransportError(fmt::format(
      "ranks {} and {} have no connection, because the program contains no message between them", from, to));
}

// With one host, the group of the sum is the process group itself, which is in the list already.
std::vector<GlooGroup> GlooConnections::take_groups() noexcept {
  std::vector<GlooGroup> groups = std::exchange(process_groups_, {});
  for (SumGroups& sum : std::exchange(sum_groups_, {})) {
    if (!sum.counterparts) continue;
    groups.push_back(std::move(sum.host));
    groups.push_back(std::move(sum.counterparts));
  }
  for (GlooGroup& group : tree_.take_groups()) groups.push_back(std::move(group));
  for (auto& [ranks, group] : std::exchange(channels_, {})) groups.push_back(std::move(group));
  return groups;
}

bool GlooConnections::leave_together() noexcept {
  if (options_.world_size == 1) return true;
  try {
    fault_point("end-barrier");
    tree_.barrier(kLeaveTimeout);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Gloo's threads may be within a read of a broken connection at any time, and new waits may begin while groups are
// destroyed, so connections are broken again and again until the groups are gone.
void GlooConnections::close() noexcept {
  std::packaged_task<void()> destroy(
      [store = std::make_unique<RendezvousStore>(std::move(rendezvous_)), groups = take_groups()]() mutable {
        // A group's last owner joins the group's thread, so that thread must not be the last owner.
        const auto others_have = [](const GlooGroup& group) { return group.defined() && group.use_count() > 1; };
        while (std::ranges::any_of(groups, others_have)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        groups.clear();
        store.reset();  // after the groups, which use it
      });
  std::future<void> is_destroyed = destroy.get_future();
  std::thread(std::move(destroy)).detach();  // a thread of Gloo that waits for the rest of a message blocks forever
  const auto end = std::chrono::steady_clock::now() + kMaxClosing;
  do {
    options_.breaker->break_all();
  } while (is_destroyed.wait_for(kBetweenBreaks) != std::future_status::ready &&
           std::chrono::steady_clock::now() < end);
}

// Destroying a group with a pending operation waits for that operation, which may never end.
void GlooConnections::abandon() noexcept {
  for (GlooGroup& group : take_groups()) group.release();
  rendezvous_.abandon();
}

}  // namespace chimera

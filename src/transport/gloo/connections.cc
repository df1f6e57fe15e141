#include "transport/gloo/connections.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "core/error.h"
#include "core/fault_point.h"
#include "transport/gloo/device.h"
#include "transport/gloo/shared_sum.h"

namespace chimera {
namespace {

using c10d::ProcessGroupGloo;

constexpr auto kLeaveTimeout = std::chrono::seconds(3);
constexpr auto kMostClosing = std::chrono::milliseconds(100);
constexpr auto kBetweenBreaks = std::chrono::milliseconds(1);

}  // namespace

std::int64_t gloo_descriptors(std::int64_t world_size, const RankGroups& groups) {
  constexpr std::int64_t kGroupsOfAll = 3;  // everyone, and messages both ways
  constexpr std::int64_t kCommon = 8;       // listener, epoll, its pipe, the store and what is open for a moment
  std::int64_t most = 0;
  for (std::int64_t rank = 0; rank < world_size; ++rank) {
    std::int64_t others = 0;
    for (const auto& group : groups) {
      if (std::ranges::count(group, RankId(rank)) > 0) others += static_cast<std::int64_t>(group.size()) - 1;
    }
    most = std::max(most, others);
  }
  return world_size == 1 ? 0 : kCommon + kGroupsOfAll * (world_size - 1) + most;
}

GlooConnections::GlooConnections(const GlooOptions& options)
    : options_(options),
      meeting_(options.meeting, options.start_up_timeout, options.breaker),
      process_groups_(options.groups.size()),
      shares_(options.groups.size()) {}

void GlooConnections::join() {
  fault_point("rendezvous");
  if (options_.world_size > 1) {
    connect_groups();
    if (options_.share_memory) find_shared_memory();
    c10d::BarrierOptions barrier;  // a rank that is ready and gone must not be missed by one still connecting
    barrier.timeout = options_.start_up_timeout;
    require_unbroken();
    wait_for_collective(*everyone_->barrier(barrier), options_.start_up_timeout, options_.breaker.get());
  }
  fault_point("connected");
}

/// A connection that was made while others were broken would be waited at in vain.
void GlooConnections::require_unbroken() const {
  if (options_.breaker && options_.breaker->broken()) throw PeerLostError("another rank was lost before all had come");
}

// All ranks create their groups in the same order, as each creation waits for the other members.
void GlooConnections::connect_groups() {
  meeting_.await_all(options_.rank, options_.world_size);
  const auto device = create_device(meeting_.own_address());
  const auto create = [&](const std::string& name, int rank, std::size_t size) {
    require_unbroken();
    auto group_options = ProcessGroupGloo::Options::create(options_.start_up_timeout);
    group_options->devices.push_back(device);  // one for all groups: one thread for all sockets
    group_options->threads = 1;
    return c10::make_intrusive<ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, meeting_.store()), rank,
                                                 static_cast<int>(size), group_options);
  };
  const auto world_size = static_cast<std::size_t>(options_.world_size);
  everyone_ = create("everyone", options_.rank, world_size);
  if (!options_.fingerprint.empty()) compare(options_.fingerprint);
  messages_.up = create("messages up", options_.rank, world_size);
  messages_.down = create("messages down", options_.rank, world_size);
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const auto& group = options_.groups[g];
    const auto place = std::find(group.begin(), group.end(), RankId(options_.rank));
    if (place == group.end() || group.size() == 1) continue;
    process_groups_[g] = create(fmt::format("group{}", g), static_cast<int>(place - group.begin()), group.size());
  }
}

void GlooConnections::compare(const Fingerprint& own) {
  FingerprintWords words = to_words(own);
  const auto size = static_cast<std::int64_t>(words.size());
  std::vector<at::Tensor> mine{at::from_blob(words.data(), {size}, at::kLong)};
  std::vector<FingerprintWords> of_ranks;
  for (const at::Tensor& other : gather_from_all(mine)) {
    of_ranks.emplace_back(other.data_ptr<std::int64_t>(), other.data_ptr<std::int64_t>() + size);
  }
  require_equal(own, of_ranks, options_.rank);
}

// Each rank says where its memory is to be found, tries that of all others, and says whose it can map.
void GlooConnections::find_shared_memory() {
  const SharedMemory memory(sizeof(std::int64_t));
  const SharedAddress own = memory.address();
  std::random_device random;
  const auto mark = static_cast<std::int64_t>((std::uint64_t{random()} << 32U) | random());
  std::memcpy(memory.data(), &mark, sizeof mark);
  std::vector<at::Tensor> mine{at::tensor({own.process, own.descriptor, own.file, mark}, at::kLong)};
  std::vector<MarkedMemory> memories;
  for (const at::Tensor& words : gather_from_all(mine)) {
    const auto* word = words.const_data_ptr<std::int64_t>();
    memories.push_back({{word[0], word[1], word[2]}, word[3]});
  }
  const std::vector<bool> found = mappable(memories);
  mine = {at::empty({options_.world_size}, at::kLong)};
  std::copy(found.begin(), found.end(), mine.front().data_ptr<std::int64_t>());
  const std::vector<at::Tensor> all = gather_from_all(mine);  // [rank][other]
  const auto maps = [&](RankId rank, RankId other) {
    return all[rank.index()].const_data_ptr<std::int64_t>()[other.index()] != 0;
  };
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const auto& group = options_.groups[g];
    shares_[g] = std::ranges::all_of(group, [&](RankId rank) {
      return std::ranges::all_of(group, [&](RankId other) { return maps(rank, other); });
    });
  }
}

/// What every rank gives, [rank]; all of one size and type.
std::vector<at::Tensor> GlooConnections::gather_from_all(std::vector<at::Tensor>& mine) {
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < options_.world_size; ++rank) all.front().push_back(at::empty_like(mine.front()));
  c10d::AllgatherOptions gather;
  gather.timeout = options_.timeout;
  wait_for_collective(*everyone_->allgather(all, mine, gather), options_.timeout, options_.breaker.get());
  return std::move(all.front());
}

bool GlooConnections::leave_together() noexcept {
  if (options_.world_size == 1) return true;
  try {
    c10d::BarrierOptions barrier;
    barrier.timeout = kLeaveTimeout;
    everyone_->barrier(barrier)->wait();
    return true;
  } catch (const std::exception&) {
    return false;  // this rank is done all the same; who failed says so itself
  }
}

namespace {

/// All that a rank has of connections that are broken. Gloo does not tell one of its threads that waits for a message
/// of which a part has come that the connection is gone; such a thread waits for ever, and does no harm.
struct Remains {
  MeetingStore meeting;  // destroyed last
  std::vector<GlooGroup> groups;

  /// A group's last owner waits for the group's thread, which must therefore not be that thread.
  void destroy() {
    const auto others_have = [](const GlooGroup& group) { return group.defined() && group.use_count() > 1; };
    while (std::ranges::any_of(groups, others_have)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    groups.clear();
  }
};

}  // namespace

void GlooConnections::close() noexcept {
  auto remains = std::make_unique<Remains>(Remains{std::move(meeting_), std::move(process_groups_)});
  for (GlooGroup* group : {&messages_.up, &messages_.down, &everyone_}) remains->groups.push_back(std::move(*group));
  std::promise<void> destroyed;
  std::future<void> is_destroyed = destroyed.get_future();
  std::thread([remains = std::move(remains), destroyed = std::move(destroyed)]() mutable {
    remains->destroy();
    remains.reset();
    destroyed.set_value();
  }).detach();
  const auto end = std::chrono::steady_clock::now() + kMostClosing;
  do {
    options_.breaker->break_all();
  } while (is_destroyed.wait_for(kBetweenBreaks) != std::future_status::ready &&
           std::chrono::steady_clock::now() < end);
}

void GlooConnections::abandon() noexcept {
  messages_.release();
  everyone_.release();
  for (GlooGroup& group : process_groups_) group.release();
  meeting_.abandon();
}

}  // namespace chimera

// Fake groups replace NCCL; they are as strict (support/fake_network.h).

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "rendezvous/address.h"
#include "support/fake_device.h"
#include "support/fake_network.h"
#include "support/message_of.h"
#include "transport/connection_breaker.h"
#include "transport/pairs/communicators.h"
#include "transport/pairs/pair_transport.h"
#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A group whose abort returns only once all aborts have begun, and then throws.
struct StubbornGroup final : c10d::Backend {
  explicit StubbornGroup(std::latch& begun) : Backend(0, 2), begun_(begun) {}
  void abort() override {
    begun_.arrive_and_wait();
    throw std::runtime_error("it does not answer");
  }

 private:
  std::latch& begun_;
};

/// Names of the communicators that a rank creates, in order.
std::vector<std::string> names_of(int rank, const NcclOptions& plan) {
  std::vector<std::string> names;
  NcclOptions own = plan;
  own.rank = rank;
  static_cast<void>(make_communicators(own, {}, [&](const NewCommunicator& wanted) {
    names.push_back(wanted.name);
    return Communicators::Group();
  }));
  return names;
}

TEST(CommunicatorsTest, RanksCreateThemInOneOrderOnePerDirection) {
  const NcclOptions plan = {
      .world_size = 3, .groups = {{RankId(0), RankId(2)}, {RankId(1)}}, .pairs = {{0, 1}, {0, 2}, {1, 2}}};
  EXPECT_THAT(names_of(0, plan), ElementsAre("everyone", "group0", "pair0-1", "pair1-0", "pair0-2", "pair2-0"));
  EXPECT_THAT(names_of(1, plan), ElementsAre("everyone", "pair0-1", "pair1-0", "pair1-2", "pair2-1"));
  EXPECT_THAT(names_of(2, plan), ElementsAre("everyone", "group0", "pair0-2", "pair2-0", "pair1-2", "pair2-1"));
  EXPECT_THAT(names_of(0, {.world_size = 1, .groups = {{RankId(0)}}}), ElementsAre());
}

/// Many communicators take longer than the limit of a hang.
TEST(CommunicatorsTest, EachCommunicatorIsProgress) {
  NcclOptions plan = {.rank = 1, .world_size = 3, .groups = {{RankId(0), RankId(1)}}, .pairs = {{0, 1}, {1, 2}}};
  int notes = 0;
  plan.on_group_connected = [&] { ++notes; };
  int made = 0;
  static_cast<void>(make_communicators(plan, {}, [&](const NewCommunicator& /*wanted*/) {
    EXPECT_EQ(notes, made++);
    return Communicators::Group();
  }));
  EXPECT_EQ(made, 6);
  EXPECT_EQ(notes, made);
}

TEST(CommunicatorsTest, EachConnectedGroupIsProgress) {
  testing::FakeNetwork network(2, {{RankId(0), RankId(1)}}, {{0, 1}});
  const auto connect = [&](int rank) {
    int notes = 0;
    Communicators to = network.communicators(rank);
    to.on_group_connected = [&] { ++notes; };
    static_cast<void>(make_pair_transport(std::move(to)));
    return notes;
  };
  auto other = std::async(std::launch::async, connect, 1);
  EXPECT_EQ(connect(0), 4) << "all ranks, one sum, both directions of a pair";
  EXPECT_EQ(other.get(), 4);
}

/// D ranks: every two exchange messages, and all all-reduce `sums` parameter groups.
NcclOptions everyone_with_everyone(int ranks, std::size_t sums) {
  NcclOptions plan = {.world_size = ranks, .pairs = all_pairs(ranks)};
  std::vector<RankId> all;
  for (int rank = 0; rank < ranks; ++rank) all.emplace_back(rank);
  plan.groups.assign(sums, all);
  return plan;
}

/// Thread blocks of all communicators that a rank creates.
int blocks_of(const NcclOptions& plan, const BlockLimits& limits) {
  int blocks = 0;
  static_cast<void>(make_communicators(plan, limits, [&](const NewCommunicator& wanted) {
    EXPECT_GE(wanted.blocks, 1) << wanted.name;
    blocks += wanted.blocks;
    return Communicators::Group();
  }));
  return blocks;
}

TEST(CommunicatorsTest, ConcurrentWaitsLeaveHalfOfAGpu) {
  for (const int multiprocessors : {40, 80, 108, 132, 148}) {
    for (const int ranks : {2, 3, 5, 8, 9}) {
      for (const std::size_t sums : {0, 1, 2, 3}) {
        NcclOptions plan = everyone_with_everyone(ranks, sums);
        plan.rank = ranks - 1;
        EXPECT_LE(blocks_of(plan, block_limits(plan, multiprocessors)), multiprocessors / 2)
            << multiprocessors << " " << ranks << " " << sums;
      }
    }
  }
}

TEST(CommunicatorsTest, SumsGetAtLeastTheBlocksOfMessages) {
  const BlockLimits few = block_limits(everyone_with_everyone(3, 2), 132);
  EXPECT_EQ(few.pair, 2);
  EXPECT_EQ(few.group, 16);
  const BlockLimits many = block_limits(everyone_with_everyone(8, 3), 132);
  EXPECT_EQ(many.pair, 2);
  EXPECT_EQ(many.group, 8);
}

/// Their blocks wait for the other replica while ops run.
TEST(CommunicatorsTest, SumsInsideOpsHaveALimitOfTheirOwn) {
  NcclOptions plan{
      .world_size = 4,
      .groups = {{RankId(0), RankId(2)}, {RankId(1), RankId(3)}, {RankId(0), RankId(1)}, {RankId(2), RankId(3)}},
      .pairs = {{0, 2}, {1, 3}},
      .has_early_sums = true,
      .first_op_group = 2};
  const BlockLimits limits = block_limits(plan, 132);
  EXPECT_EQ(limits.op, 32);
  EXPECT_EQ(limits.group, kBlocksOfEarlySums);
  EXPECT_EQ(limits.pair, 2);
  EXPECT_LE(limits.held(communicators_of_a_rank(plan)), 66);
  EXPECT_EQ(block_limits(plan, 24).op, 4) << "one block is left for each of four others";
  EXPECT_LE(block_limits(plan, 24).held(communicators_of_a_rank(plan)), 12);
}

TEST(CommunicatorsTest, EarlySumsGetFewBlocks) {
  NcclOptions plan = everyone_with_everyone(3, 2);
  plan.has_early_sums = true;
  EXPECT_EQ(block_limits(plan, 132).group, kBlocksOfEarlySums);
  EXPECT_EQ(block_limits(plan, 132).pair, 2);
  EXPECT_EQ(block_limits(plan, 40).group, block_limits(everyone_with_everyone(3, 2), 40).group) << "fewer anyway";
}

TEST(CommunicatorsTest, MoreCommunicatorsThanAGpuHoldsAreRefusedInOneLine) {
  EXPECT_THAT(
      testing::message_of([&] { static_cast<void>(block_limits(everyone_with_everyone(8, 6), 40)); }, "accepted"),
      AllOf(HasSubstr("21 communicators"), HasSubstr("40 multiprocessors")));
}

TEST(CommunicatorsTest, MoreCommunicatorsThanStreamsAreRefusedInOneLine) {
  EXPECT_NO_THROW(static_cast<void>(block_limits(everyone_with_everyone(15, 2), 132)));
  EXPECT_THAT(
      testing::message_of([&] { static_cast<void>(block_limits(everyone_with_everyone(15, 3), 132)); }, "accepted"),
      AllOf(HasSubstr("32 communicators (28 for messages, 3 for sums)"), HasSubstr("the 31")));
}

TEST(CommunicatorsTest, CountsMultiprocessorsOfConcurrentWaits) {
  const NcclOptions plan = everyone_with_everyone(3, 2);
  const CommunicatorCount count = communicators_of_a_rank(plan);
  EXPECT_EQ(count.all(), 4 + 2 + 1);
  const BlockLimits limits = block_limits(plan, 132);
  EXPECT_EQ(limits.held(count), 4 * 2 + 2 * 16 + 1);
  EXPECT_EQ(limits.held(count), blocks_of(plan, limits));
}

TEST(CommunicatorsTest, CountsMultiprocessorsOfWaitingMessages) {
  const auto of_a_rank = [](const NcclOptions& plan, int multiprocessors) {
    return make_communicators(plan, block_limits(plan, multiprocessors),
                              [](const NewCommunicator& /*wanted*/) { return Communicators::Group(); })
        .message_blocks;
  };
  EXPECT_EQ(of_a_rank(everyone_with_everyone(3, 2), 132), 2 * 2 * 2) << "two peers, both directions, two blocks each";
  EXPECT_EQ(of_a_rank(everyone_with_everyone(8, 2), 40), 2 * 7) << "one block each";
  EXPECT_EQ(of_a_rank({.world_size = 1}, 132), 0);
}

TEST(CommunicatorsTest, ProductsLeaveMultiprocessorsToWaitingMessages) {
  const at::Device gpu(testing::kFakeDevice, 0);
  at::Context& torch = at::globalContext();
  int preferred = 0;
  const auto prefer = [&] { ++preferred; };
  make_pair_transport({.device = gpu, .message_blocks = 4, .prefer_cublaslt = prefer}).reset();
  EXPECT_EQ(torch._SMCarveout_EXPERIMENTAL(), std::nullopt) << "afterwards";
  {
    const auto transport = make_pair_transport({.device = gpu, .message_blocks = 4, .prefer_cublaslt = prefer});
    EXPECT_EQ(torch._SMCarveout_EXPERIMENTAL(), 4);
    EXPECT_EQ(preferred, 2) << "only cuBLASLt reads the number";
  }
  {
    const auto on_cpu = make_pair_transport({.message_blocks = 4, .prefer_cublaslt = prefer});
    const auto canonical =
        make_pair_transport({.device = gpu, .sums_in_order = true, .message_blocks = 4, .prefer_cublaslt = prefer});
    EXPECT_EQ(torch._SMCarveout_EXPERIMENTAL(), std::nullopt);
    EXPECT_EQ(preferred, 2);
  }
  torch._setSMCarveout_EXPERIMENTAL(7);
  {
    const auto transport = make_pair_transport({.device = gpu, .message_blocks = 4, .prefer_cublaslt = prefer});
    EXPECT_EQ(torch._SMCarveout_EXPERIMENTAL(), 7) << "the user's";
    EXPECT_EQ(preferred, 3);
  }
  EXPECT_EQ(torch._SMCarveout_EXPERIMENTAL(), 7);
  torch._setSMCarveout_EXPERIMENTAL(std::nullopt);
}

/// The default asks LibTorch, which refuses here.
TEST(CommunicatorsTest, ProductsOfALibTorchWithoutCudaCannotLeaveMultiprocessors) {
  const at::Device gpu(testing::kFakeDevice, 0);
  EXPECT_THROW(static_cast<void>(make_pair_transport({.device = gpu, .message_blocks = 4})), c10::Error);
}

TEST(CommunicatorsTest, AllRanksGetTheSmallestLimit) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto least = [&](int rank, int number) { return minimum_over_ranks(*store, rank, number, 2); };
  auto other = std::async(std::launch::async, least, 1, 80);
  EXPECT_EQ(least(0, 132), 80);
  EXPECT_EQ(other.get(), 80);
}

TEST(CommunicatorsTest, AbortsAllInTheOrderOfCreation) {
  const NcclOptions plan = {
      .rank = 1, .world_size = 3, .groups = {{RankId(0)}, {RankId(0), RankId(1)}}, .pairs = {{0, 1}, {1, 2}}};
  std::latch nobody(0);
  std::vector<Communicators::Group> made;
  const Communicators of = make_communicators(plan, {}, [&](const NewCommunicator& /*wanted*/) {
    made.push_back(c10::make_intrusive<StubbornGroup>(nobody));
    return made.back();
  });
  EXPECT_THAT(made, ::testing::SizeIs(6));
  EXPECT_EQ(all_groups(of), made);
}

TEST(CommunicatorsTest, BothEndsOfAMessageUseTheSameCommunicator) {
  const NcclOptions plan = {.world_size = 2, .pairs = {{0, 1}}};
  std::map<std::string, Communicators::Group> made;
  std::vector<Communicators> ranks;
  testing::FakeNetwork network(2, {}, {{0, 1}});
  for (int rank = 0; rank < 2; ++rank) {
    NcclOptions own = plan;
    own.rank = rank;
    ranks.push_back(make_communicators(own, {}, [&](const NewCommunicator& wanted) {
      EXPECT_EQ(wanted.member, rank);
      Communicators::Group& group = made[wanted.name];
      if (!group) group = network.communicators(0).everyone;  // any group serves here
      return group;
    }));
  }
  EXPECT_EQ(ranks[0].pairs[1].out, made["pair0-1"]);
  EXPECT_EQ(ranks[1].pairs[0].in, made["pair0-1"]);
  EXPECT_EQ(ranks[1].pairs[0].out, made["pair1-0"]);
  EXPECT_EQ(ranks[0].pairs[1].in, made["pair1-0"]);
}

/// Both ranks issue first one direction, then the other. In a queue shared by both directions, two receives or two
/// sends would meet.
TEST(CommunicatorsTest, BothDirectionsAreInFlightAtOnce) {
  for (const bool receives_first : {false, true}) {
    testing::FakeNetwork network(2, {}, {{0, 1}});
    const auto play = [&](int rank) {
      const auto transport = make_pair_transport(network.communicators(rank));
      const RankId peer(1 - rank);
      std::unique_ptr<Pending> send;
      std::unique_ptr<Pending> receive;
      const auto start_send = [&] { send = transport->start_send(peer, at::full({2}, rank, at::kFloat), {}); };
      if (!receives_first) start_send();
      receive = transport->post_receive(peer, {.sizes = {2}, .dtype = at::kFloat}, {});
      if (receives_first) start_send();
      send->wait();
      return receive->wait()[1].item<double>();
    };
    auto other = std::async(std::launch::async, play, 1);
    EXPECT_EQ(play(0), 1);
    EXPECT_EQ(other.get(), 0);
    EXPECT_EQ(network.why_closed(), "");
  }
}

/// NCCL connects two members when both make their first call. A rank must not block there for a member that makes the
/// call later in its program. Here the all-reduce starts only after rank 0 has received rank 2's last message.
TEST(CommunicatorsTest, NoFirstCallOfAProgramWaitsForTheOtherMembers) {
  const RankGroups groups = {{RankId(0), RankId(1), RankId(2)}};
  const ParameterGroupId all(0);
  testing::FakeNetwork network(3, groups, {{0, 1}, {0, 2}, {1, 2}});
  const auto play = [&](int rank) {
    const auto transport = make_pair_transport(network.communicators(rank, /*sums_in_order=*/true));
    const at::Tensor ones = at::ones({3}, at::kFloat);
    std::vector<std::unique_ptr<Pending>> pending;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != rank) pending.push_back(transport->post_receive(RankId(peer), {{3}, at::kFloat}, {}));
    }
    if (rank != 2) pending.push_back(transport->start_all_reduce(all, ones.clone()));
    for (int peer = 2; peer >= 0; --peer) {
      if (peer != rank) pending.push_back(transport->start_send(RankId(peer), ones, {}));
    }
    if (rank == 2) pending.push_back(transport->start_all_reduce(all, ones.clone()));
    for (const auto& each : pending) each->wait();
  };
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(std::async(std::launch::async, play, rank));
  for (auto& rank : ranks) EXPECT_NO_THROW(rank.get());
  EXPECT_EQ(network.why_closed(), "");
}

/// Imitates CUDA's caching allocator while the host is ahead of the device: the events of recorded blocks do not
/// finish. During a capture it waits for no events either (CUDACachingAllocator.cpp, free()). Replaces the CPU's
/// allocator during its lifetime.
class FakeCachingAllocator final : public c10::Allocator {
 public:
  /// Blocks of at least this size are counted.
  static constexpr std::size_t kCounted = 1 << 16;

  FakeCachingAllocator() : previous_(c10::GetCPUAllocator()) {
    current_ = this;
    c10::SetCPUAllocator(this);
  }
  FakeCachingAllocator& operator=(FakeCachingAllocator&&) = delete;
  ~FakeCachingAllocator() override { c10::SetCPUAllocator(previous_); }

  c10::DataPtr allocate(std::size_t size) override {
    if (size < kCounted) return previous_->allocate(size);
    void* const block = std::malloc(size);
    const std::scoped_lock lock(mutex_);
    most_ = std::max(most_, ++in_use_);
    return {block, block, &free_block, at::kCPU};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, std::size_t size) const override { default_copy_data(to, from, size); }

  /// Like CUDA's, ignores memory from other sources.
  void record(const c10::DataPtr& memory) {
    if (memory.get_deleter() != &free_block) return;
    const std::scoped_lock lock(mutex_);
    recorded_.insert(memory.get());
  }
  /// Largest number of blocks in use at once, with freed blocks whose events have not finished.
  [[nodiscard]] std::int64_t most() const { return most_; }

 private:
  static void free_block(void* block) {
    {
      const std::scoped_lock lock(current_->mutex_);
      if (current_->recorded_.erase(block) == 0) --current_->in_use_;
    }
    std::free(block);
  }

  static inline FakeCachingAllocator* current_ = nullptr;
  c10::Allocator* previous_;
  std::mutex mutex_;
  std::set<void*> recorded_;
  std::int64_t in_use_ = 0;
  std::int64_t most_ = 0;
};

/// Returns the largest number of messages in memory of both ranks if one sends this many messages to the other.
std::int64_t most_messages_in_memory(int messages) {
  constexpr std::int64_t kElements = FakeCachingAllocator::kCounted / sizeof(float);
  FakeCachingAllocator allocator;
  testing::FakeNetwork network(2, {}, {{0, 1}});
  network.records = [&](const at::Tensor& tensor) { allocator.record(tensor.storage().data_ptr()); };
  const auto send = [&] {
    const auto transport = make_pair_transport(network.communicators(0));
    for (int m = 0; m < messages; ++m) {
      transport->start_send(RankId(1), at::full({kElements}, m, at::kFloat), {})->wait();
    }
  };
  const auto receive = [&] {
    const auto transport = make_pair_transport(network.communicators(1));
    for (int m = 0; m < messages; ++m) {
      const auto pending = transport->post_receive(RankId(0), {{kElements}, at::kFloat}, {});
      EXPECT_EQ(pending->wait()[kElements - 1].item<float>(), m);
    }
  };
  auto sender = std::async(std::launch::async, send);
  receive();
  sender.get();
  return allocator.most();
}

TEST(CommunicatorsTest, MemoryOfMessagesDoesNotGrowWithTheirNumber) {
  EXPECT_LE(most_messages_in_memory(4), 4);
  EXPECT_LE(most_messages_in_memory(64), 4);
}

TEST(CommunicatorsTest, RanksLearnWhenAllAreConnected) {
  testing::FakeNetwork network(2, {}, {{0, 1}});
  std::atomic<int> come = 0;
  std::atomic<int> told = 0;
  const auto join = [&](int rank) {
    Communicators to = network.communicators(rank);
    to.connected = [&] {
      EXPECT_EQ(come, 2);
      ++told;
    };
    ++come;
    return make_pair_transport(std::move(to));
  };
  auto other = std::async(std::launch::async, join, 1);
  const auto own = join(0);
  static_cast<void>(other.get());
  EXPECT_EQ(told, 2);
}

TEST(CommunicatorsTest, AnErrorThatAGroupReportsIsALostPeer) {
  testing::FakeNetwork network(1, {}, {});
  Communicators to = network.communicators(0);
  testing::FakeNetwork others(2, {}, {{0, 1}});
  to.process_groups = {others.communicators(0).everyone};
  const auto transport = make_pair_transport(std::move(to));
  EXPECT_NO_THROW(transport->require_peers());
  others.error = c10d::ErrorType::COMM_ERROR;
  try {
    transport->require_peers();
    FAIL();
  } catch (const PeerLostError& error) {
    EXPECT_STREQ(error.what(), "rank 0: fake reports that a connection failed");
  }
}

TEST(CommunicatorsTest, ExceptionAbortsTransfersInFlight) {
  std::vector<bool> ends;
  const auto end = [&](bool has_failed) { ends.push_back(has_failed); };
  try {
    const auto transport = make_pair_transport({.end = end});
    throw TransportError("a peer is gone");
  } catch (const TransportError&) {
    EXPECT_THAT(ends, ElementsAre(true));
  }
  ends.clear();
  make_pair_transport({.end = end}).reset();
  EXPECT_THAT(ends, ElementsAre(false));
}

/// While NCCL connects, it waits for other ranks at a socket that listens.
TEST(ConnectionBreakerTest, ASocketThatListensAcceptsUntilListenersAreIncluded) {
  RendezvousPoint loopback;
  loopback.host = "127.0.0.1";
  const FileDescriptor listener = listen_at(loopback);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  ConnectionBreaker breaker;
  breaker.break_all();
  const FileDescriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_GE(FileDescriptor(::accept(listener.get(), nullptr, nullptr)).get(), 0);
  breaker.include_listeners();
  breaker.break_all();
  EXPECT_LT(::accept(listener.get(), nullptr, nullptr), 0);
}

/// Three ranks with a breaker each, which have made some sums over all of them.
class BreakableRanksTest : public ::testing::Test {
 protected:
  BreakableRanksTest() {
    run([&](std::size_t rank) {
      Communicators own = network.communicators(static_cast<int>(rank));
      own.breaker = breakers[rank] = std::make_shared<ConnectionBreaker>();
      ranks[rank] = make_pair_transport(std::move(own));
      for (int repetition = 0; repetition < 3; ++repetition) EXPECT_EQ(sum_of_ones(rank), 3);
      ranks[rank]->confirm();
    });
  }
  double sum_of_ones(std::size_t rank) {
    std::array<double, 1> one{1};
    ranks[rank]->all_sum(one);
    return one[0];
  }
  void run(const std::function<void(std::size_t)>& body) {
    const auto failed = threads.run(
        3, [&](RankId rank) { body(rank.index()); }, [](const std::string&) {});
    if (failed) std::rethrow_exception(failed->error);
  }

  testing::FakeNetwork network{3, {}, {}};
  std::array<std::shared_ptr<ConnectionBreaker>, 3> breakers;
  std::array<std::unique_ptr<Transport>, 3> ranks;
  RankThreads threads{3};
};

TEST_F(BreakableRanksTest, NoRankTakesWhatAbortedGroupsDeliver) {
  run([&](std::size_t rank) {
    if (rank == 2) return breakers[1]->break_all();  // Rank 2 is lost
    EXPECT_THROW(sum_of_ones(rank), PeerLostError);
    EXPECT_THROW(ranks[rank]->confirm(), PeerLostError);
  });
  EXPECT_FALSE(breakers[0]->is_broken());
}

/// The work of rank 1 after its abort was issued before. Its gradients are wrong.
TEST_F(BreakableRanksTest, NoRankTakesTheSumIfAnotherOneHasAbortedItsGroupsBefore) {
  network.everyone_outlives_aborts = true;
  breakers[1]->break_all();
  breakers[1]->reset();
  run([&](std::size_t rank) {
    EXPECT_THROW(sum_of_ones(rank), PeerLostError);
    EXPECT_THROW(ranks[rank]->confirm(), PeerLostError);
  });
}

TEST(CommunicatorsTest, AllAreAbortedConcurrently) {
  std::latch begun(3);
  std::vector<Communicators::Group> groups;
  for (int group = 0; group < 3; ++group) groups.push_back(c10::make_intrusive<StubbornGroup>(begun));
  EXPECT_NO_THROW(abort_together(groups));
  EXPECT_TRUE(begun.try_wait());
}

/// The error that each rank's comparison throws, or "".
std::vector<std::string> compare(const std::vector<RankIdentity>& attendees) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> errors(attendees.size());
  std::vector<std::jthread> ranks;
  for (std::size_t r = 0; r < attendees.size(); ++r) {
    ranks.emplace_back([&, r] {
      try {
        compare_ranks(*store, attendees[r], static_cast<int>(attendees.size()));
      } catch (const ConfigError& error) {
        errors[r] = error.what();
      } catch (const PeerLostError& error) {
        errors[r] = std::string("peer lost: ") + error.what();
      }
    });
  }
  ranks.clear();
  return errors;
}

TEST(CommunicatorsTest, RanksThatWereStartedDifferentlyAreRefused) {
  const Fingerprint right = {{"the build", 1}, {"--seed", 2}};
  const Fingerprint wrong = {{"the build", 1}, {"--seed", 3}};
  EXPECT_THAT(compare({{0, right, "a"}, {1, right, "b"}}), ElementsAre("", ""));
  EXPECT_THAT(compare({{0, right, "a"}, {1, right, "b"}, {2, wrong, "c"}}),
              ElementsAre(HasSubstr("peer lost"), HasSubstr("rank 2 was started differently"), HasSubstr("--seed")));
}

TEST(CommunicatorsTest, RanksThatShareAGpuAreRejected) {
  EXPECT_THAT(compare({{0, {}, "a"}, {1, {}, "b"}, {2, {}, "a"}}),
              ElementsAre(AllOf(HasSubstr("ranks 0, 2 do not have a GPU each"), HasSubstr("as many processes")),
                          HasSubstr("peer lost"), HasSubstr("ranks 0, 2")));
  EXPECT_THAT(compare({{0, {}, ""}, {1, {}, ""}}), ElementsAre("", "")) << "nobody knows";
}

TEST(CommunicatorsTest, NcclConnectsOnlyTheAlgorithmsInUse) {
  for (const auto& [name, value] : nccl_variables(file_rendezvous("/nowhere"))) EXPECT_NE(name, "NCCL_RUNTIME_CONNECT");
}

TEST(CommunicatorsTest, NcclListensOnlyOnTheRendezvousInterface) {
  using Variable = std::pair<std::string, std::string>;
  RendezvousPoint rendezvous = file_rendezvous("/nowhere");
  EXPECT_THAT(nccl_variables(rendezvous), ::testing::Contains(Variable("NCCL_SOCKET_IFNAME", "=lo")));
  rendezvous = {};
  rendezvous.host = "127.0.0.1";
  rendezvous.port = 7;
  EXPECT_THAT(nccl_variables(rendezvous), ::testing::Contains(Variable("NCCL_SOCKET_IFNAME", "=lo")));
  rendezvous.interface = "wire7";
  EXPECT_THROW(static_cast<void>(nccl_variables(rendezvous)), ConfigError);
}

TEST(CommunicatorsTest, TheUsersBlockLimitsAreReplaced) {
  ::setenv("NCCL_MIN_NCHANNELS", "32", /*overwrite=*/1);
  ::setenv("NCCL_MAX_CTAS", "4", /*overwrite=*/1);
  EXPECT_THAT(keep_block_limits(), AllOf(HasSubstr("NCCL_MIN_NCHANNELS=32, NCCL_MAX_CTAS=4 ignored")));
  EXPECT_STREQ(std::getenv("NCCL_MIN_NCHANNELS"), "-2");
  EXPECT_STREQ(std::getenv("NCCL_MIN_P2P_NCHANNELS"), "1") << "nccl.conf sets only what the environment lacks";
  EXPECT_EQ(keep_block_limits(), "");
  for (const char* name :
       {"NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MIN_P2P_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"}) {
    ::unsetenv(name);
  }
}

TEST(CommunicatorsTest, AnErrorOfNcclKeepsItsCause) {
  const c10::DistBackendError error(
      {},
      "NCCL error in: file.cpp:12, remote error\nncclRemoteError: A call failed.\nLast error:\nwrong type 3 != 4\n\n");
  EXPECT_EQ(error_line(error), "NCCL error in: file.cpp:12, remote error; wrong type 3 != 4");
  EXPECT_EQ(error_line(c10::Error({}, "one\ntwo")), "one");
}

TEST(CommunicatorsTest, NcclEndsNoProcessThatOutlivesItsPeers) {
  const RendezvousPoint rendezvous = file_rendezvous("/nowhere");
  for (const char* name :
       {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"}) {
    const auto is_off = ::testing::Contains(::testing::Pair(name, "0"));
    EXPECT_THAT(nccl_variables(rendezvous, /*outlives_peers=*/true), is_off);
    EXPECT_THAT(nccl_variables(rendezvous), ::testing::Not(is_off));
  }
}

}  // namespace
}  // namespace chimera

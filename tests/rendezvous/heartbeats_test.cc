
#include "rendezvous/heartbeats.h"

#include <gmock/gmock.h>
#include <poll.h>

#include <array>
#include <future>
#include <memory>
#include <optional>

#include "rendezvous/channel.h"

namespace chimera {
namespace {

using std::chrono::milliseconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// The failure that was reported to a rank.
struct Told {
  std::string reason;
  bool own = false;
};

/// A rank with its heartbeats, and the promise of the failure that will be reported to it.
class Rank {
 public:
  static std::unique_ptr<Rank> first(FileDescriptor socket, const std::function<bool()>& has_lost_connection = {}) {
    auto rank = std::make_unique<Rank>();
    HeartbeatOptions options = rank->options(0, "a word");
    options.has_lost_connection = has_lost_connection;
    rank->beats_.emplace(std::move(socket), std::move(options));
    return rank;
  }
  static std::unique_ptr<Rank> other(int number, std::uint16_t port, const std::string& secret = "a word") {
    auto rank = std::make_unique<Rank>();
    rank->beats_.emplace("127.0.0.1", port, rank->options(number, secret));
    return rank;
  }
  Heartbeats& beats() { return *beats_; }
  Told told() {
    auto future = told_.get_future();
    if (future.wait_for(std::chrono::minutes(1)) != std::future_status::ready) return {"nothing in a minute"};
    return future.get();
  }

 private:
  HeartbeatOptions options(int rank, const std::string& secret) {
    return {.rank = rank,
            .secret = secret,
            .limit = milliseconds(600),
            .farewell = milliseconds(400),
            .settling = milliseconds(300),
            .on_silence = [this](const std::string& reason, bool own) {
              told_.set_value({reason, own});
            }};
  }
  std::promise<Told> told_;
  std::optional<Heartbeats> beats_;  // destroyed before the promise
};

TEST(HeartbeatsTest, RankZeroReportsASilentRankToTheOthers) {
  FileDescriptor socket = Heartbeats::socket_at("127.0.0.1");
  const std::uint16_t port = Heartbeats::port_of(socket);
  const auto first = Rank::first(std::move(socket));
  const auto second = Rank::other(1, port);
  Rank::other(2, port).reset();                  // its first datagram is sent immediately
  Rank::other(3, port, "another word").reset();  // not part of the job, so its loss is not reported
  const Told found = first->told();
  EXPECT_THAT(found.reason, StartsWith("rank 2 on host "));
  EXPECT_THAT(found.reason, HasSubstr("silent for 0.6 s: stopped"));
  EXPECT_TRUE(found.own);
  const Told passed_on = second->told();
  EXPECT_EQ(passed_on.reason, found.reason);
  EXPECT_FALSE(passed_on.own);
}

TEST(HeartbeatsTest, ReportsTheLostRankNotTheRankThatNoticed) {
  FileDescriptor socket = Heartbeats::socket_at("127.0.0.1");
  const std::uint16_t port = Heartbeats::port_of(socket);
  const auto first = Rank::first(std::move(socket));
  const auto second = Rank::other(1, port);
  Rank::other(2, port).reset();  // killed right after its first datagram
  second->beats().leave();       // as if it had lost rank 2
  const Told found = first->told();
  EXPECT_THAT(found.reason, StartsWith("rank 2 on host "));
  EXPECT_THAT(found.reason, EndsWith(" is gone: killed, or ended without an error report"));
  EXPECT_EQ(second->told().reason, found.reason);
}

/// Sends a heartbeat: rank, number, host, verdict, and whether the rank leaves.
void send_beat(int socket, const std::string& words, const SocketAddress& to) {
  const std::string datagram = std::string(bytes_of(prove("a word", words))) + words;
  ASSERT_GT(::sendto(socket, datagram.data(), datagram.size(), 0, to.get(), to.size), 0);
}

/// Acts as rank 0 on host "far": answers once.
void answer_once(const FileDescriptor& socket) {
  pollfd watched{socket.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&watched, 1, 60'000), 1);
  std::array<char, 1024> buffer{};
  SocketAddress from;
  from.size = sizeof from.storage;
  ASSERT_GT(
      ::recvfrom(socket.get(), buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&from.storage), &from.size),
      0);
  send_beat(socket.get(), R"([0, 1, "far", "", false])", from);
}

TEST(HeartbeatsTest, OtherRanksDetectTheLossOfRankZero) {
  const FileDescriptor socket = Heartbeats::socket_at("127.0.0.1");
  const auto second = Rank::other(1, Heartbeats::port_of(socket));
  answer_once(socket);
  const Told found = second->told();
  EXPECT_EQ(found.reason, "host far (rank 0) silent for 0.6 s: it is down, stopped or cut off");
  EXPECT_TRUE(found.own);
}

TEST(HeartbeatsTest, ARankThatLosesRankZeroNamesIt) {
  const FileDescriptor socket = Heartbeats::socket_at("127.0.0.1");
  const auto second = Rank::other(1, Heartbeats::port_of(socket));
  answer_once(socket);
  second->beats().leave();
  const Told found = second->told();
  EXPECT_EQ(found.reason, "rank 0 on host far is gone: killed, or ended without an error report");
  EXPECT_TRUE(found.own);
}

// Every other rank has ended in good order, and this one waits for a message that cannot come.
TEST(HeartbeatsTest, ARankThatStillWaitsForAnEndedOneEnds) {
  FileDescriptor socket = Heartbeats::socket_at("127.0.0.1");
  const std::uint16_t port = Heartbeats::port_of(socket);
  const auto first = Rank::first(std::move(socket));
  const FileDescriptor other = Heartbeats::socket_at("127.0.0.1");
  send_beat(other.get(), R"([2, 1, "far", "", true])", server_addresses({.host = "127.0.0.1", .port = port}).front());
  const Told found = first->told();
  EXPECT_EQ(found.reason, "rank 2 on host far ended after an error, and others still waited for it 0.4 s later");
  EXPECT_TRUE(found.own);
}

TEST(HeartbeatsTest, ARankThatDoesNotNoticeItsLostConnectionEnds) {
  FileDescriptor socket = Heartbeats::socket_at("127.0.0.1");
  const std::uint16_t port = Heartbeats::port_of(socket);
  const auto first = Rank::first(std::move(socket), [] { return true; });
  const auto second = Rank::other(1, port);
  const Told found = first->told();
  EXPECT_THAT(found.reason, StartsWith("rank 0 on host "));
  EXPECT_THAT(found.reason, EndsWith(" has lost a connection, and still waited for it 0.6 s later"));
  EXPECT_TRUE(found.own);
  EXPECT_EQ(second->told().reason, found.reason);
}

TEST(HeartbeatsTest, NamesLostRanksWithTheirHost) {
  const std::map<int, PeerHeartbeat> all = {{1, {.host = "a"}}, {2, {.host = "b"}}, {3, {.host = "b"}}};
  EXPECT_EQ(describe_gone(all, {3}), "rank 3 on host b is gone: killed, or ended without an error report");
  EXPECT_EQ(describe_gone(all, {2, 3}), "ranks 2, 3 on host b are gone: killed, or ended without an error report");
  EXPECT_EQ(describe_gone(all, {1, 3}), "rank 1 on host a is gone: killed, or ended without an error report");
}

TEST(HeartbeatsTest, NamesAHostIfAllItsRanksAreSilent) {
  const std::map<int, PeerHeartbeat> all = {{1, {.host = "a"}}, {2, {.host = "b"}}, {3, {.host = "b"}}};
  EXPECT_EQ(describe_silence(all, {2, 3}, milliseconds(3000), "c"),
            "host b (ranks 2, 3) silent for 3 s: it is down, stopped or cut off");
  EXPECT_EQ(describe_silence(all, {3}, milliseconds(3000), "c"), "rank 3 on host b silent for 3 s: stopped");
  EXPECT_EQ(describe_silence(all, {1}, milliseconds(3000), "c"),
            "host a (rank 1) silent for 3 s: it is down, stopped or cut off");
}

TEST(HeartbeatsTest, HostOfTheReportingRankIsNotDown) {
  const std::map<int, PeerHeartbeat> all = {{1, {.host = "a"}}, {2, {.host = "b"}}};  // rank 0 is on host a
  EXPECT_EQ(describe_silence(all, {1}, milliseconds(3000), "a"), "rank 1 on host a silent for 3 s: stopped");
}

}  // namespace
}  // namespace chimera

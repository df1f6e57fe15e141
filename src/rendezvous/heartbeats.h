#pragma once
// UDP heartbeats between hosts, which a stalled TCP connection cannot delay.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/file_descriptor.h"
#include "rendezvous/address.h"

namespace chimera {

struct HeardRank {
  std::string host;  ///< Name from gethostname()
  std::chrono::steady_clock::time_point last = {};
  std::uint64_t count = 0;  ///< Sequence number; older datagrams are ignored
  bool leaves = false;      ///< The rank announced that it is about to end
};

/// Returns "host b (ranks 2, 3) silent for 2.5 s: it is down, stopped or cut off". If other ranks of that host are
/// heard, or it is `own_host`, returns "rank 3 on host b silent for 2.5 s: stopped". Names only ranks on the first
/// silent rank's host. `silent` is ascending and not empty.
[[nodiscard]] std::string describe_silence(const std::map<int, HeardRank>& all, const std::vector<int>& silent,
                                           std::chrono::milliseconds limit, const std::string& own_host);

/// Returns "rank 3 on host b is gone: killed, or ended without a word". `gone` is ascending and not empty.
[[nodiscard]] std::string describe_gone(const std::map<int, HeardRank>& all, const std::vector<int>& gone);

struct HeartbeatOptions {
  int rank = 0;
  std::string secret = {};                ///< Secret of the job; datagrams with another secret are ignored
  std::chrono::milliseconds limit{2500};  ///< Silence limit; together with the send interval, less than 3 s
  /// Limit for live ranks to announce their end, after the first announcement. A rank without announcement that was
  /// silent for 80 % of this time is gone.
  std::chrono::milliseconds settling{750};
  /// Called once, on the heartbeat thread, if a rank is gone or silent for too long. `own` is false only for a failure
  /// that rank 0 reported to another rank.
  std::function<void(const std::string& reason, bool own)> on_silence;
};

/// Every rank sends rank 0 a heartbeat each 250 ms, and rank 0 replies. A rank counts as failed only after its first
/// heartbeat (a firewall may block UDP), and not after it announced its end. Time while this process was stopped does
/// not count.
class Heartbeats {
 public:
  /// Returns a socket at `address`, at any free port. Throws TransportError on failure.
  [[nodiscard]] static FileDescriptor socket_at(const std::string& address);
  [[nodiscard]] static std::uint16_t port_of(const FileDescriptor& socket);

  /// Starts the heartbeats of rank 0.
  Heartbeats(FileDescriptor socket, HeartbeatOptions options);
  /// Starts the heartbeats of another rank; `address` and `port` are rank 0's.
  Heartbeats(const std::string& address, std::uint16_t port, HeartbeatOptions options);
  Heartbeats(const Heartbeats&) = delete;
  Heartbeats& operator=(const Heartbeats&) = delete;
  ~Heartbeats();

  /// Announces that this rank is about to end because it failed or lost a peer. Others then end soon, too. After
  /// `settling`, rank 0 finds ranks that died without an announcement; other ranks check rank 0.
  void leave();

 private:
  void begin();
  void watch();
  void send_to(const SocketAddress& to, const std::string& verdict);
  void receive();
  void take(std::string_view datagram, const SocketAddress& from);
  [[nodiscard]] std::vector<int> silent() const;
  [[nodiscard]] std::vector<int> silent_for(std::chrono::milliseconds time) const;
  [[nodiscard]] std::string find_gone();

  HeartbeatOptions options_;
  std::string host_;
  FileDescriptor socket_;
  FileDescriptor stop_;  // readable to end the thread
  FileDescriptor news_;  // readable after leave()
  std::atomic<bool> leaves_ = false;
  std::optional<std::chrono::steady_clock::time_point> settled_;
  std::map<int, HeardRank> heard_;
  std::map<int, SocketAddress> addresses_;  // addresses of the other ranks on rank 0; only of rank 0 on other ranks
  std::uint64_t sent_ = 0;
  std::string verdict_;  // failure reported by rank 0
  std::thread thread_;   // last, because it uses the other members
};

}  // namespace chimera

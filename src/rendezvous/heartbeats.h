#pragma once

// UDP heartbeats between hosts, which a stalled TCP connection cannot delay. Every rank sends rank 0 a datagram each
// 250 ms, and rank 0 replies, so a host that is down or cut off is noticed in less than 3 s. Rank 0 sends its verdict
// to all ranks, which then end with the same reason. The train room runs it (train/recover/host_watch.h).

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
  std::string host;  ///< from gethostname()
  std::chrono::steady_clock::time_point last = {};
  std::uint64_t count = 0;  ///< older datagrams are ignored
  bool leaves = false;      ///< announced its end
};

/// Returns "host b (ranks 2, 3) silent for 2.5 s: it is down, stopped or cut off", or "rank 3 on host b silent for 2.5
/// s: stopped" if other ranks of that host are heard, or it is `own_host`. Names only ranks on the first silent rank's
/// host. `silent` is ascending and not empty.
[[nodiscard]] std::string describe_silence(const std::map<int, HeardRank>& all, const std::vector<int>& silent,
                                           std::chrono::milliseconds limit, const std::string& own_host);

/// Returns "rank 3 on host b is gone: killed, or ended without a word". `gone` is ascending and not empty.
[[nodiscard]] std::string describe_gone(const std::map<int, HeardRank>& all, const std::vector<int>& gone);

struct HeartbeatOptions {
  int rank = 0;
  std::string secret = {};                ///< datagrams with another secret are ignored
  std::chrono::milliseconds limit{2500};  ///< silence limit; with the send interval, less than 3 s
  /// Time for live ranks to announce their end, after the first announcement. A rank without announcement that was
  /// silent for 80 % of it is gone.
  std::chrono::milliseconds settling{750};
  /// Called once, on the heartbeat thread, if a rank is gone or silent for too long. `own` is false only for a failure
  /// that rank 0 reported.
  std::function<void(const std::string& reason, bool own)> on_silence;
};

/// Every rank sends rank 0 a heartbeat each 250 ms, and rank 0 replies. A rank can fail only after its first heartbeat
/// (a firewall may block UDP), and not after it announced its end. Time while this process was stopped does not count.
class Heartbeats {
 public:
  /// Binds any free port. Throws TransportError.
  [[nodiscard]] static FileDescriptor socket_at(const std::string& address);
  [[nodiscard]] static std::uint16_t port_of(const FileDescriptor& socket);

  /// Constructor for rank 0.
  Heartbeats(FileDescriptor socket, HeartbeatOptions options);
  /// Constructor for other ranks; `address` and `port` are rank 0's.
  Heartbeats(const std::string& address, std::uint16_t port, HeartbeatOptions options);
  Heartbeats(const Heartbeats&) = delete;
  Heartbeats& operator=(const Heartbeats&) = delete;
  ~Heartbeats();

  /// Announces that this rank ends because it failed or lost a peer. After `settling`, rank 0 finds ranks that died
  /// without an announcement; other ranks check rank 0.
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
  FileDescriptor stop_;  // readable at the end
  FileDescriptor news_;  // readable after leave()
  std::atomic<bool> leaves_ = false;
  std::optional<std::chrono::steady_clock::time_point> settled_;
  std::map<int, HeardRank> heard_;
  std::map<int, SocketAddress> addresses_;  // of the other ranks on rank 0; of rank 0 on other ranks
  std::uint64_t sent_ = 0;
  std::string verdict_;  // reported by rank 0
  std::thread thread_;   // last member, because it uses the others
};

}  // namespace chimera

#pragma once

// Heartbeats between hosts, as UDP datagrams, which a stalled TCP connection cannot delay. Every rank sends rank 0 a
// heartbeat each 250 ms, and rank 0 replies. So a host that is down or cut off is detected in less than 3 s. Rank 0
// then sends the reason to all ranks, which end with the same error message. watch_hosts() (train/loop/run.cc)
// starts the Heartbeats of a rank.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "core/file_descriptor.h"
#include "rendezvous/address.h"

namespace chimera {

/// The state of another rank, from the heartbeats that it has sent.
struct PeerHeartbeat {
  std::string host;                                 ///< its host's name (gethostname())
  std::chrono::steady_clock::time_point last = {};  ///< time of its last heartbeat
  std::uint64_t count = 0;                          ///< number of its last heartbeat; lower ones are ignored
  bool leaves = false;                              ///< whether it has announced its end
};

/// Returns the error message for ranks that were silent for `limit`: "host b (ranks 2, 3) silent for 2.5 s: it is down,
/// stopped or cut off". If other ranks of this host still send heartbeats, or it is `own_host`: "rank 3 on host b
/// silent for 2.5 s: stopped". Names only ranks on the first silent rank's host. `all` has the states of the other
/// ranks, by rank; `silent` has ranks, ascending, at least one.
[[nodiscard]] std::string describe_silence(const std::map<int, PeerHeartbeat>& all, const std::vector<int>& silent,
                                           std::chrono::milliseconds limit, const std::string& own_host);

/// Returns "rank 3 on host b is gone: killed, or ended without an error report". `gone` is ascending and not empty.
[[nodiscard]] std::string describe_gone(const std::map<int, PeerHeartbeat>& all, const std::vector<int>& gone);

/// Returns "ranks 2, 3 on host b ended after an error, and others still waited for them 10 s later". `left` is
/// ascending and not empty.
[[nodiscard]] std::string describe_left(const std::map<int, PeerHeartbeat>& all, const std::vector<int>& left,
                                        std::chrono::milliseconds time);

/// Options of a rank's heartbeats.
struct HeartbeatOptions {
  int rank = 0;
  std::string secret = {};                ///< datagrams with another secret are ignored
  std::chrono::milliseconds limit{2500};  ///< a rank that is silent for this long has failed
  /// If this rank still runs so long after the last heartbeat of a rank that announced its end, it waits in vain:
  /// on_silence is called.
  std::chrono::milliseconds farewell{10'000};
  /// When a rank ends because of an error, it announces its end, and the others soon follow. After the first
  /// announcement, they have this time for theirs. Then a rank that has made no announcement, and was silent for 80 %
  /// of this time, is gone.
  std::chrono::milliseconds settling{750};
  /// Returns whether a connection of this rank is closed, although all ranks still run; may be empty. If this lasts for
  /// `limit`, the rank waits in vain on that connection: on_silence is called.
  std::function<bool()> has_lost_connection = {};
  /// Called once, on the heartbeat thread, if a rank is gone or silent for too long. `reason` is the error message.
  /// `own` says whether this rank has detected the failure; if not, rank 0 has sent the reason.
  std::function<void(const std::string& reason, bool own)> on_silence;
};

/// Sends and receives the heartbeats of a rank on a thread of its own. A rank counts as failed only if it has sent a
/// heartbeat before (a firewall may block UDP), and has not announced its end. Time while this process was stopped
/// (Ctrl-Z) does not count. The constructors throw Error if the system refuses a descriptor.
class Heartbeats {
 public:
  /// Returns a socket of rank 0 at `address` with any free port. Throws TransportError.
  [[nodiscard]] static FileDescriptor socket_at(const std::string& address);
  /// Returns the port, which rank 0 must tell the other ranks.
  [[nodiscard]] static std::uint16_t port_of(const FileDescriptor& socket);

  /// Starts rank 0, with the result of socket_at().
  Heartbeats(FileDescriptor socket, HeartbeatOptions options);
  /// Starts another rank; `address` and `port` lead to the socket of rank 0. Also throws TransportError or ConfigError
  /// if `address` has no usable address (server_addresses()).
  Heartbeats(const std::string& address, std::uint16_t port, HeartbeatOptions options);
  Heartbeats& operator=(Heartbeats&&) = delete;
  /// Ends the thread, and announces nothing.
  ~Heartbeats();

  /// Announces that this rank ends because it failed or lost a peer. When `settling` is over, rank 0 looks for ranks
  /// that are gone without an announcement; every other rank does so for rank 0. Any thread may call it.
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
  [[nodiscard]] std::string find_left() const;
  [[nodiscard]] std::string find_closed();

  HeartbeatOptions options_;
  std::string host_;
  FileDescriptor socket_;
  FileDescriptor news_;  // readable after leave() and at the end
  std::atomic<bool> leaves_ = false;
  std::atomic<bool> ends_ = false;
  std::optional<std::chrono::steady_clock::time_point> settled_;
  std::optional<std::chrono::steady_clock::time_point> closed_;  // when a lost connection was first seen
  std::map<int, PeerHeartbeat> heard_;                           // all other ranks on rank 0; rank 0 on other ranks
  std::map<int, SocketAddress> addresses_;  // of the other ranks on rank 0; of rank 0 on other ranks
  std::uint64_t sent_ = 0;
  std::string verdict_;  // reported by rank 0
  std::thread thread_;   // last member, because it uses the others
};

}  // namespace chimera

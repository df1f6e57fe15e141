#pragma once
// Who of the ranks on several hosts is still there: small datagrams, which no lost connection holds up.

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

/// A rank that others wait for.
struct HeardRank {
  std::string host;  ///< the host's own name
  std::chrono::steady_clock::time_point last = {};
  std::uint64_t count = 0;  ///< of its datagrams: older ones, sent again by anyone, mean nothing
  bool leaves = false;      ///< it has said that it is about to end
};

/// "host b (ranks 2, 3) has been silent for 2.5 s: it is down, stopped or cut off"; where others on its host are heard,
/// or where it is `own_host`, on which whoever says this lives, "rank 3 on host b ... : stopped". `silent` ascending,
/// none of it empty; [rank].
[[nodiscard]] std::string describe_silence(const std::map<int, HeardRank>& all, const std::vector<int>& silent,
                                           std::chrono::milliseconds limit, const std::string& own_host);

/// "rank 3 on host b is gone: killed, or ended without a word"; of several, those on the host of the first one.
/// `gone` as `silent` above.
[[nodiscard]] std::string describe_gone(const std::map<int, HeardRank>& all, const std::vector<int>& gone);

struct HeartbeatOptions {
  int rank = 0;
  std::string secret = {};                ///< of the job: datagrams of others mean nothing
  std::chrono::milliseconds limit{2500};  ///< with the pause between datagrams, less than 3 s
  /// The time from the first word of a rank that it ends until the others that have lost one will have said so too; a
  /// rank that has not, and is silent for nearly as long, is gone.
  std::chrono::milliseconds settling{750};
  /// Called once, on a thread of its own, where someone is gone or has been silent for longer: rank 0 calls it for any
  /// rank, with `own` true; the others for rank 0, with `own` true, or with what rank 0 has found out.
  std::function<void(const std::string& reason, bool own)> on_silence;
};

/// Every rank sends rank 0 a datagram each 250 ms, and gets one back. A rank that was never heard is not missed: its
/// way may be closed to datagrams. Nor is one that has said that it ends, nor anyone while this process itself was
/// stopped.
class Heartbeats {
 public:
  /// Rank 0's, at one of this host's addresses and any port. Throws TransportError where the system refuses.
  [[nodiscard]] static FileDescriptor socket_at(const std::string& address);
  /// The port of such a socket.
  [[nodiscard]] static std::uint16_t port_of(const FileDescriptor& socket);

  /// Rank 0's side.
  Heartbeats(FileDescriptor socket, HeartbeatOptions options);
  /// That of the others, towards rank 0's address and port.
  Heartbeats(const std::string& address, std::uint16_t port, HeartbeatOptions options);
  Heartbeats(const Heartbeats&) = delete;
  Heartbeats& operator=(const Heartbeats&) = delete;
  ~Heartbeats();

  /// This rank is about to end, as it has failed or lost another one. Others that lose it then end soon, too; rank 0
  /// finds out who is gone without having said so, and the others whether rank 0 is.
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
  FileDescriptor stop_;  // readable once the watch is to end
  FileDescriptor news_;  // readable once this rank leaves
  std::atomic<bool> leaves_ = false;
  std::optional<std::chrono::steady_clock::time_point> settled_;  // when all that leave will have said so
  std::map<int, HeardRank> heard_;
  std::map<int, SocketAddress> addresses_;  // rank 0: of the others; else of rank 0
  std::uint64_t sent_ = 0;
  std::string verdict_;  // of rank 0, once it came
  std::thread thread_;   // last, as it uses the others
};

}  // namespace chimera

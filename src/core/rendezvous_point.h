#pragma once
// Where the ranks of a job find each other.

#include <cstdint>
#include <string>
#include <utility>

namespace chimera {

/// Ranks exchange their addresses in a file or, where they run on several hosts, at a server.
struct MeetingPoint {
  /// A file that all ranks can open, empty at first; removed by whoever made it. May be "/proc/self/fd/N" of a memfd:
  /// it is opened anew, so N may be closed once the ranks have joined. Empty: `host`.
  std::string file = {};
  std::string host = {};       ///< a name or address, IPv4 or IPv6, of the host whose rank listens
  std::uint16_t port = 0;      ///< TCP
  bool listens = false;        ///< this rank is the server, at this address alone; the others are its clients
  bool is_agent = false;       ///< torchrun's agent is the server: a TCPStore, which asks nobody for a secret
  std::string attempt = {};    ///< what keeps the words of one start of the job from those of another; may be empty
  std::string secret = {};     ///< that whoever joins has to know; empty: anyone who reaches the server may
  std::string interface = {};  ///< through which ranks on several hosts talk; empty: the one that leads to the server
};

[[nodiscard]] inline MeetingPoint meeting_in_file(std::string path) {
  MeetingPoint meeting;
  meeting.file = std::move(path);
  return meeting;
}

}  // namespace chimera

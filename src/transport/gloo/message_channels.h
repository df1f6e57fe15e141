#pragma once
// Connections between the ranks that have messages for each other.

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "transport/gloo/group.h"
#include "transport/neighbors.h"

namespace chimera {

/// Two process groups for each pair of ranks that talk, one for each direction. Where a sender is interrupted while it
/// holds a connection's lock, Gloo's thread tries that lock again and again, for as long as the kernel lets it, if
/// anything has arrived there. Here next to nothing does.
class MessageChannels {
 public:
  /// Makes the process group of the calling rank and `other`, the lower one first, under a name of its own.
  using Connect = std::function<GlooGroup(const std::string& name, int other)>;
  /// Connects `rank` with those it talks to.
  void connect(int rank, const std::vector<RankPair>& pairs, const Connect& connect);

  /// The group whose two ranks are these, which carries messages this way alone. Throws TransportError where the ranks
  /// are not among the pairs.
  [[nodiscard]] const GlooGroup& between(int from, int to) const;
  /// The place of `rank` in that of it and `other`.
  [[nodiscard]] static int place(int rank, int other) { return rank < other ? 0 : 1; }

  /// Lets go of all process groups.
  [[nodiscard]] std::vector<GlooGroup> take_groups() noexcept;

 private:
  std::map<std::pair<int, int>, GlooGroup> groups_;  // [from, to]
};

}  // namespace chimera

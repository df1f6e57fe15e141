#pragma once
// Links between two nodes, as they are measured apart from the nodes themselves.

#include <cstdint>
#include <string>

#include "plan/machine.h"

namespace chimera {

/// Links between two nodes, over their network, in seconds and bytes.
struct NodeLinks {
  LinkTimes messages;
  LinkTimes sums;
  double transfers = 0;      ///< Contention::node_transfers
  LinkTimes copies = {};     ///< MachineProfile::node_message_copy
  double step_overhead = 0;  ///< seconds of a step that ranks of both end together
  std::string source;        ///< by what they were measured, and where
  friend bool operator==(const NodeLinks&, const NodeLinks&) = default;
};

/// The machine with those links between its nodes, each of which has that many workers; 0: as many as its cores have
/// room for, where its workers share cores.
[[nodiscard]] MachineProfile with_links_between(MachineProfile machine, const NodeLinks& links,
                                                std::int64_t workers_per_node = 0);

/// The links as JSON text that node_links_from_json() reads back to the same value.
[[nodiscard]] std::string to_json(const NodeLinks& links);
/// Reads it from a text that messages call `source`. Throws ConfigError as machine_from_json() does.
[[nodiscard]] NodeLinks node_links_from_json(const std::string& text, const std::string& source);

}  // namespace chimera

#include "plan/node_links.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plan/profile_json.h"

namespace chimera {

MachineProfile with_links_between(MachineProfile machine, const NodeLinks& links, std::int64_t workers_per_node) {
  machine.sources.push_back(links.source);
  machine.point_to_point.between_nodes = links.messages;
  machine.all_reduce.between_nodes = links.sums;
  machine.contention.node_transfers = links.transfers;
  machine.node_message_copy = links.copies;
  if (workers_per_node > 0) {
    machine.workers_per_node = workers_per_node;
  } else if (machine.cores > 0) {
    machine.workers_per_node = std::max<std::int64_t>(1, machine.cores / machine.threads);
  }
  // Ranks of a node, then nodes.
  machine.step_overhead = links.step_overhead + (machine.workers_per_node > 1 ? machine.step_overhead : 0);
  return machine;
}

std::string to_json(const NodeLinks& links) {
  const nlohmann::ordered_json json = {{"messages", link_json(links.messages)}, {"sums", link_json(links.sums)},
                                       {"transfers", links.transfers},          {"copies", link_json(links.copies)},
                                       {"step_overhead", links.step_overhead},  {"source", links.source}};
  return json.dump(2) + "\n";
}

NodeLinks node_links_from_json(const std::string& text, const std::string& source) {
  const nlohmann::json json = parse_json(text, source);
  const JsonValue root(json, source);
  root.expect_object({"messages", "sums", "transfers", "copies", "step_overhead", "source"});
  return {.messages = read_link(root.field("messages")),
          .sums = read_link(root.field("sums")),
          .transfers = root.number("transfers", kMostRatio),
          .copies = read_link(root.field("copies")),
          .step_overhead = root.number("step_overhead", kMostSeconds),
          .source = root.text("source")};
}

}  // namespace chimera

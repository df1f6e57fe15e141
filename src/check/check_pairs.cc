#include "check/check_pairs.h"

#include <optional>
#include <string>

#include "check/wait_cycle.h"
#include "schedule/dependencies.h"

namespace chimera {
namespace {

/// Why the op and the one behind it are no pair, if they are none.
std::optional<std::string> fault_of_pair(const Schedule& schedule, const std::vector<Op>& ops, std::size_t position) {
  if (schedule.updates) return "paired; an asynchronous schedule has no pairs";
  if (ops[position].kind != OpKind::Forward) return "paired; a pair begins with a forward";
  if (position + 1 == ops.size()) return "paired, but no op follows it on its worker";
  const Op& second = ops[position + 1];
  if (!gives_input_gradient(second.kind)) {
    return fmt::format("paired with {}; the second op of a pair is B or I", to_text(second));
  }
  if (second.micro_batch == ops[position].micro_batch) {
    return fmt::format("paired with {}, which needs it: it is of the same micro-batch", to_text(second));
  }
  return std::nullopt;
}

/// The op, or the pair that it runs in: `0F1&0B0`.
std::string in_words(const Schedule& schedule, Place place, Pairs pairs) {
  const auto& ops = schedule.workers[place.worker];
  if (place.position > 0 && num_at_once(ops, place.position - 1, pairs) > 1) --place.position;
  const std::string text = to_text(ops[place.position]);
  return num_at_once(ops, place.position, pairs) > 1 ? text + "&" + to_text(ops[place.position + 1]) : text;
}

std::string in_words(const Schedule& schedule, const std::vector<Wait>& cycle, Pairs pairs) {
  std::string message = pairs == Pairs::Together ? "where pairs run together, " : "";
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const auto& [op, input] = cycle[i];
    message += fmt::format("{}worker {} cannot run {} (its op {}) before {} (op {} of worker {})", i == 0 ? "" : "; ",
                           op.worker, in_words(schedule, op, pairs), op.position, in_words(schedule, input, pairs),
                           input.position, input.worker);
  }
  return message;
}

}  // namespace

void check_acyclic(const Schedule& schedule, Pairs pairs, Findings& findings) {
  const OpTable table(schedule);
  const auto visited = visit_in_dependency_order(
      table, [](OpIndex) {}, pairs);
  const auto cycle = shortest_wait_cycle(table, visited, pairs);
  if (cycle.empty()) return;
  std::vector<Place> places;
  for (const Wait& wait : cycle) places.insert(places.end(), {wait.op, wait.input});
  const auto kind = pairs == Pairs::Together ? ViolationKind::BadPair : ViolationKind::Cycle;
  findings.add(kind, std::move(places), [&] { return in_words(schedule, cycle, pairs); });
}

void check_pairs(const Schedule& schedule, Findings& findings) {
  bool all_right = true;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    const auto& ops = schedule.workers[w];
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i].paired) continue;
      const auto fault = fault_of_pair(schedule, ops, i);
      if (!fault) continue;
      all_right = false;
      findings.add_at(schedule, ViolationKind::BadPair, {w, i}, "{}", *fault);
    }
  }
  if (all_right) check_acyclic(schedule, Pairs::Together, findings);
}

}  // namespace chimera

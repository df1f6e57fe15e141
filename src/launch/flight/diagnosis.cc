#include "launch/flight/diagnosis.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "core/json.h"
#include "core/mapped.h"

namespace chimera {
namespace {

using Events = std::vector<FlightEvent>;
using Json = nlohmann::ordered_json;
using Phase = RankProgress::Phase;

/// Finds whom a rank waits for: the other ranks that must act, and whose records do not show that they have.
class Waits {
 public:
  explicit Waits(const Flight& flight) : flight_(flight) {}

  /// Returns the ranks that `rank` waits for during activity `at`.
  [[nodiscard]] std::vector<int> of(int rank, const RankProgress& at) const {
    if (at.phase == Phase::Joining)
      return without(all(), rank, [](const RankProgress& other) { return other.phase != Phase::StartUp; });
    if (at.phase != Phase::Steps) return {};
    const auto [ranks, kind] = others_of(rank, at.instruction);
    return without(ranks, rank,
                   [&, awaited = kind](const RankProgress& other) { return has_done(other, awaited, at); });
  }

 private:
  /// Returns the ranks on which a wait depends, and the instruction of theirs that ends it.
  [[nodiscard]] std::pair<std::vector<int>, InstructionKind> others_of(int rank, const Instruction& waits) const {
    switch (waits.kind) {
      case InstructionKind::WaitReceive: return {peer(rank, waits.peer), InstructionKind::StartSend};
      case InstructionKind::WaitSend: return {peer(rank, waits.peer), InstructionKind::PostReceive};
      case InstructionKind::WaitAllReduce: return {members(rank, waits.group), InstructionKind::StartAllReduce};
      case InstructionKind::ReduceScalars: return {all(), InstructionKind::ReduceScalars};
      default: return {};
    }
  }

  /// Returns whether `progress` shows that a rank has reached the instruction that ends the wait, or is beyond that
  /// step.
  static bool has_done(const RankProgress& progress, InstructionKind kind, const RankProgress& waiting) {
    if (progress.phase != Phase::Steps) return progress.phase == Phase::Ending;
    const Instruction& other = progress.instruction;
    const Instruction& waits = waiting.instruction;
    // In a later step the rank is beyond the wait, whatever it does there.
    if (progress.step != waiting.step || other.kind != kind) return progress.step > waiting.step;
    return is_transfer(kind) ? other.op == waits.op : !is_all_reduce(kind) || other.group == waits.group;
  }

  /// Returns `ranks` without the rank itself and ranks with an event that meets `condition`.
  template <class Condition>
  [[nodiscard]] std::vector<int> without(std::vector<int> ranks, int self, const Condition& condition) const {
    std::erase_if(ranks, [&](int rank) {
      const auto& events = flight_.ranks[static_cast<std::size_t>(rank)];
      return rank == self || (events && std::ranges::any_of(*events, condition, &FlightEvent::progress));
    });
    return ranks;
  }

  [[nodiscard]] std::vector<int> all() const {
    std::vector<int> ranks(flight_.ranks.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    std::erase_if(ranks, [&](int rank) { return flight_.job.ranks[static_cast<std::size_t>(rank)] == kAbsent; });
    return ranks;
  }

  [[nodiscard]] std::vector<int> peer(int self, WorkerId worker) const {
    const GroupWorker other{flight_.job.ranks[static_cast<std::size_t>(self)].group, worker};
    const auto found = std::ranges::find(flight_.job.ranks, other);
    if (found == flight_.job.ranks.end()) return {};
    // The ranks of a worker stand one after the other, and this finds the first. Messages stay among ranks of equal t.
    return {static_cast<int>(found - flight_.job.ranks.begin() + self % flight_.job.tensor_parallel)};
  }

  [[nodiscard]] std::vector<int> members(int self, ParameterGroupId group) const {
    std::vector<int> ranks;
    const std::int64_t shared = flight_.job.tensor_parallel;  // messages and sums stay among ranks of equal t
    const auto own = static_cast<std::size_t>(group.value() * shared + self % shared);
    if (own >= flight_.job.sums.size()) return ranks;
    for (const RankId rank : flight_.job.sums[own])
      if (rank.index() < flight_.ranks.size()) ranks.push_back(static_cast<int>(rank.value()));
    return ranks;
  }

  const Flight& flight_;
};

/// Returns the job's end, or, without a verdict, the time of the last event.
std::int64_t end_of(const Flight& flight) {
  std::int64_t end = flight.verdict ? flight.verdict->nanoseconds : 0;
  for (const auto& events : flight.ranks)
    if (!flight.verdict && events && !events->empty()) end = std::max(end, events->back().nanoseconds);
  return end;
}

/// Follows the waits to their end. If every rank waits, as in a deadlock or after a lost message, the rank that has
/// waited longest stopped first, and the others wait for it directly or over others.
std::optional<int> infer_guilty(const std::vector<RankFinding>& ranks) {
  std::vector<RankFinding> suspects;
  for (const RankFinding& rank : ranks)
    if (!rank.is_absent && rank.at && rank.at->phase != Phase::Ending) suspects.push_back(rank);
  if (std::ranges::any_of(suspects, [](const RankFinding& rank) { return rank.waits_for.empty(); }))
    std::erase_if(suspects, [](const RankFinding& rank) { return !rank.waits_for.empty(); });
  if (suspects.empty()) return std::nullopt;
  return std::ranges::max_element(suspects, {}, &RankFinding::seconds)->rank;
}

std::string reason_of(const Flight& flight) { return flight.verdict ? flight.verdict->reason : ""; }

/// Returns " (worker 1, t 0)" if ranks share layers.
std::string part_of(int rank, const FlightJob& job) {
  if (job.tensor_parallel == 1 || static_cast<std::size_t>(rank) >= job.ranks.size()) return "";
  const GroupWorker& place = job.ranks[static_cast<std::size_t>(rank)];
  return fmt::format(" (worker {}, t {})", place.worker.value(), rank % job.tensor_parallel);
}

std::string place_of(const RankFinding& rank) {
  if (!rank.at) return "no record";
  return to_text(*rank.at) + (rank.is_absent ? ", then lost" : "");
}

std::string waited_for(const Diagnosis& diagnosis, const std::vector<int>& ranks) {
  const auto text_of = [&](int rank) {
    return fmt::format("rank {} ({})", rank, place_of(diagnosis.ranks[static_cast<std::size_t>(rank)]));
  };
  return fmt::format("{}", fmt::join(mapped(ranks, text_of), ", "));
}

std::span<const FlightEvent> last_of(const Events& events, std::size_t count) {
  return std::span(events).last(std::min(count, events.size()));
}

double seconds_before(std::int64_t end, const FlightEvent& event) {
  return static_cast<double>(end - event.nanoseconds) / 1e9;
}

Json findings_json(const Diagnosis& diagnosis, const Flight& flight, std::size_t events) {
  Json ranks = Json::array();
  for (const RankFinding& rank : diagnosis.ranks) {
    const Events record = flight.ranks[static_cast<std::size_t>(rank.rank)].value_or(Events{});
    const auto last = mapped(last_of(record, events), [&](const FlightEvent& event) {
      return Json{{"seconds_before_end", seconds_before(end_of(flight), event)}, {"at", to_text(event.progress)}};
    });
    ranks.push_back({{"rank", rank.rank},
                     {"at", rank.at ? Json(to_text(*rank.at)) : Json()},
                     {"step", rank.at ? Json(rank.at->step) : Json()},
                     {"seconds", rank.seconds},
                     {"waits_for", rank.waits_for},
                     {"events", last}});
  }
  return ranks;
}

/// Returns the local time and the host of the end; empty if unknown.
std::string ended_text(const Flight& flight) {
  if (!flight.verdict || flight.verdict->unix_seconds == 0) return "";
  return fmt::format("ended: {:%Y-%m-%d %H:%M:%S} on host {}\n", fmt::localtime(flight.verdict->unix_seconds),
                     flight.verdict->host);
}

}  // namespace

Diagnosis diagnose(const Flight& flight) {
  Diagnosis diagnosis;
  const std::int64_t end = end_of(flight);
  const Waits waits(flight);
  for (std::size_t r = 0; r < flight.ranks.size(); ++r) {
    RankFinding finding{.rank = static_cast<int>(r), .is_absent = flight.job.ranks[r] == kAbsent};
    if (const auto& events = flight.ranks[r]; events && !events->empty()) {
      finding.at = events->back().progress;
      finding.seconds = std::max(0.0, seconds_before(end, events->back()));
      if (!finding.is_absent) finding.waits_for = waits.of(finding.rank, *finding.at);
    }
    diagnosis.ranks.push_back(std::move(finding));
  }
  const bool is_blamed = flight.verdict && flight.verdict->culprit;
  diagnosis.culprit = is_blamed ? flight.verdict->culprit : infer_guilty(diagnosis.ranks);
  diagnosis.is_inferred = !is_blamed;
  if (!diagnosis.culprit || static_cast<std::size_t>(*diagnosis.culprit) >= diagnosis.ranks.size()) return diagnosis;
  const RankFinding& culprit = diagnosis.ranks[static_cast<std::size_t>(*diagnosis.culprit)];
  diagnosis.op = is_blamed && !flight.verdict->op.empty() ? flight.verdict->op : culprit.at ? to_text(*culprit.at) : "";
  return diagnosis;
}

std::string to_text(const Diagnosis& diagnosis, const Flight& flight, std::size_t events) {
  const std::string reason = reason_of(flight);
  std::string text =
      fmt::format("{}: {}\n", flight.folder, reason.empty() ? "no launcher has recorded the cause" : reason);
  text += ended_text(flight);
  if (!diagnosis.newest_checkpoint.empty()) text += fmt::format("newest checkpoint: {}\n", diagnosis.newest_checkpoint);
  if (diagnosis.culprit) {
    text += fmt::format("guilty: rank {}{}, at {}{}\n", *diagnosis.culprit, part_of(*diagnosis.culprit, flight.job),
                        diagnosis.op,
                        diagnosis.is_inferred ? " (inferred: it waits for no other rank, or has waited longest)" : "");
  } else {
    text += "guilty: no rank\n";
  }
  text += fmt::format("\n{:>4}  {:44}  {:>9}  {}\n", "rank", "was at", "for", "waiting for");
  for (const RankFinding& rank : diagnosis.ranks) {
    const std::string line = fmt::format("{:>4}  {:44}  {:>7.3f} s  {}", rank.rank, place_of(rank), rank.seconds,
                                         waited_for(diagnosis, rank.waits_for));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  if (!diagnosis.culprit || events == 0) return text;
  const auto& record = flight.ranks[static_cast<std::size_t>(*diagnosis.culprit)];
  if (!record) return text;
  text += fmt::format("\nlast of rank {}, seconds before the end:\n", *diagnosis.culprit);
  for (const FlightEvent& event : last_of(*record, events))
    text += fmt::format("{:>10.6f}  {}\n", seconds_before(end_of(flight), event), to_text(event.progress));
  return text;
}

std::string to_json(const Diagnosis& diagnosis, const Flight& flight, std::size_t events) {
  const Json json = {{"folder", flight.folder},
                     {"schedule", flight.job.schedule},
                     {"reason", reason_of(flight)},
                     {"ended_unix_seconds",
                      flight.verdict && flight.verdict->unix_seconds > 0 ? Json(flight.verdict->unix_seconds) : Json()},
                     {"host", flight.verdict ? flight.verdict->host : ""},
                     {"newest_checkpoint", diagnosis.newest_checkpoint},
                     {"guilty", diagnosis.culprit ? Json(*diagnosis.culprit) : Json()},
                     {"inferred", diagnosis.is_inferred},
                     {"op", diagnosis.op},
                     {"ranks", findings_json(diagnosis, flight, events)}};
  return json_report(json);
}

}  // namespace chimera

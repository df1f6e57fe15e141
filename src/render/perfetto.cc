// Writes events of Chrome's trace format as text, one per line. The letters of `ph` are their types: M names a track or
// process, X is a slice with start and duration, s and f are the ends of an arrow, C sets a counter. TraceEvents knows
// the format; TimelineTrace turns the parts of a timeline into events.

#include "render/perfetto.h"

#include <algorithm>
#include <array>

#include "core/reject.h"

namespace chimera {
namespace {

/// Viewers treat thread 0 as idle.
std::size_t thread_of(std::size_t track) { return track + 1; }

const char* name_of(TraceProcess process) {
  constexpr std::array kNames = {"ops", "idle", "all-reduce", "memory", "transfers", "order"};
  return kNames[static_cast<std::size_t>(process) - 1];
}

constexpr double kMicroseconds = 1000;  // Microseconds per unit of time
// Viewers count nanoseconds in 64 bits, and a unit of time becomes 10^6 of them.
constexpr double kLongest = 1e12;
constexpr double kInside = 1e-6;  // An arrow starts before the end of an op, by this fraction of its length

template <class T>
bool empty(const std::vector<std::vector<T>>& lists) {
  return std::all_of(lists.begin(), lists.end(), [](const auto& list) { return list.empty(); });
}

std::vector<std::vector<bool>> mark_places(const Schedule& schedule, const std::vector<Place>& places) {
  std::vector<std::vector<bool>> marks;
  for (const auto& ops : schedule.workers) marks.emplace_back(ops.size(), false);
  for (const Place& place : places) marks[place.worker][place.position] = true;
  return marks;
}

std::string pair_argument(const std::vector<Op>& ops, std::size_t i) {
  // Each op of a pair names the other one.
  const bool is_first = ops[i].paired && i + 1 < ops.size();
  if (!is_first && (i == 0 || !ops[i - 1].paired)) return "";
  return fmt::format(R"(,"pair_with":"{}")", to_text(ops[is_first ? i + 1 : i - 1]));
}

// Viewers draw an arrow from the slice that contains its start, so an arrow begins a moment before the op ends.
class TimelineTrace {
 public:
  TimelineTrace(const Schedule& schedule, const Timeline& timeline, const TraceFrame& frame, TraceEvents& events)
      : schedule_(schedule), timeline_(timeline), frame_(frame), events_(events) {}

  void write_ops(const std::vector<Place>& critical_path) {
    const auto critical = mark_places(schedule_, critical_path);
    name_tracks(TraceProcess::Ops, schedule_.workers.size());
    for (std::size_t w = 0; w < schedule_.workers.size(); ++w) {
      for (std::size_t i = 0; i < schedule_.workers[w].size(); ++i) {
        const Op& op = schedule_.workers[w][i];
        const std::string of_slice = schedule_.slices > 1 ? fmt::format(R"("slice":{},)", op.slice) : "";
        slice(TraceProcess::Ops, w, to_text(op, schedule_.slices), timeline_.workers[w].ops[i].start,
              timeline_.workers[w].ops[i].end,
              fmt::format(R"("stage":{},"replica":{},"micro_batch":{},{}"weight_version":{},"critical":{}{})",
                          op.stage.value(), op.replica.value(), op.micro_batch.value(), of_slice, op.weight_version,
                          critical[w][i] ? "true" : "false", pair_argument(schedule_.workers[w], i)));
      }
      for (const TimedUpdate& update : timeline_.workers[w].updates)
        if (update.end > update.start) slice(TraceProcess::Ops, w, "optimizer step", update.start, update.end, "");
    }
  }

  void write_messages(const std::vector<Message>& messages) {
    for (const Message& message : messages) {
      const TimedOp& from = timeline_.workers[message.from.worker].ops[message.from.position];
      const TimedOp& to = timeline_.workers[message.to.worker].ops[message.to.position];
      const Op& made = schedule_.workers[message.from.worker][message.from.position];
      const std::string arguments =
          fmt::format(R"("sent":{},"arrived":{})", frame_.start + message.sent, frame_.start + message.arrived);
      events_.arrow({.name = made.kind == OpKind::Forward ? "activation" : "gradient",
                     .process = TraceProcess::Ops,
                     .from_track = frame_.tracks[message.from.worker].number,
                     .sent = frame_.start + from.end - (from.end - from.start) * kInside,
                     .to_track = frame_.tracks[message.to.worker].number,
                     .start = frame_.start + to.start,
                     .arguments = arguments});
    }
  }

  void write_bubbles(const std::vector<std::vector<Bubble>>& bubbles) {
    if (empty(bubbles)) return;
    name_tracks(TraceProcess::Idle, bubbles.size());
    for (std::size_t w = 0; w < bubbles.size(); ++w) {
      for (const Bubble& bubble : bubbles[w]) {
        std::string cause;
        if (bubble.waits_for) {
          const Place& place = *bubble.waits_for;
          cause = fmt::format(R"("waits_for":"{}","of_worker":{})",
                              to_text(schedule_.workers[place.worker][place.position], schedule_.slices), place.worker);
        }
        slice(TraceProcess::Idle, w, to_text(bubble.cause), bubble.start, bubble.end, cause);
      }
    }
  }

  void write_all_reduces(const std::vector<std::vector<TimedAllReduce>>& all_reduces) {
    if (empty(all_reduces)) return;
    name_tracks(TraceProcess::AllReduces, all_reduces.size());
    for (std::size_t w = 0; w < all_reduces.size(); ++w) {
      for (const TimedAllReduce& sum : all_reduces[w])
        slice(TraceProcess::AllReduces, w, fmt::format("all-reduce of stage {}", sum.group.value()), sum.start, sum.end,
              fmt::format(R"("stage":{})", sum.group.value()));
    }
  }

  void write_memory(const std::vector<std::vector<MemoryPoint>>& memory) {
    for (std::size_t w = 0; w < memory.size(); ++w) {
      for (const MemoryPoint& point : memory[w]) {
        // Counters belong to a process and not to a track, so their names tell the workers apart.
        events_.counter(TraceProcess::Memory, frame_.tracks[w].name, frame_.start + point.time, point.amount);
      }
    }
  }

 private:
  void slice(TraceProcess process, std::size_t worker, std::string_view name, double start, double end,
             std::string_view arguments) {
    events_.slice(process, frame_.tracks[worker].number, name, frame_.start + start, frame_.start + end, arguments);
  }

  void name_tracks(TraceProcess process, std::size_t num_workers) {
    for (std::size_t w = 0; w < num_workers; ++w) events_.name(process, frame_.tracks[w]);
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  const TraceFrame& frame_;
  TraceEvents& events_;
};

}  // namespace

void TraceEvents::add(const std::string& fields) {
  events_ += events_.empty() ? "\n{" : ",\n{";
  events_ += fields + '}';
}

void TraceEvents::name_process(TraceProcess process) {
  // Named at its first use, so that a file has no empty processes.
  if (!processes_.insert(process).second) return;
  const int id = static_cast<int>(process);
  add(fmt::format(R"("ph":"M","name":"process_name","pid":{},"args":{{"name":"{}"}})", id, name_of(process)));
  add(fmt::format(R"("ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}})", id, id));
}

void TraceEvents::name(TraceProcess process, const TraceTrack& track) {
  name_process(process);
  if (!tracks_.emplace(process, track.number).second) return;
  const std::size_t thread = thread_of(track.number);
  add(fmt::format(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}})",
                  static_cast<int>(process), thread, track.name));
  add(fmt::format(R"("ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}})",
                  static_cast<int>(process), thread, track.number));
}

void TraceEvents::slice(TraceProcess process, std::size_t track, std::string_view name, double start, double end,
                        std::string_view arguments) {
  add(fmt::format(R"("ph":"X","name":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}})", name,
                  static_cast<int>(process), thread_of(track), start * unit_, (end - start) * unit_, arguments));
}

// An arrow is two events with one id: `s` in the first slice, `f` bound to the slice that encloses it (`bp: e`).
void TraceEvents::arrow(const TraceArrow& arrow) {
  const int process = static_cast<int>(arrow.process);
  add(fmt::format(R"("ph":"s","id":{},"cat":"message","name":"{}","pid":{},"tid":{},"ts":{},"args":{{{}}})", arrows_,
                  arrow.name, process, thread_of(arrow.from_track), arrow.sent * unit_, arrow.arguments));
  add(fmt::format(R"("ph":"f","bp":"e","id":{},"cat":"message","name":"{}","pid":{},"tid":{},"ts":{})", arrows_,
                  arrow.name, process, thread_of(arrow.to_track), arrow.start * unit_));
  ++arrows_;
}

void TraceEvents::counter(TraceProcess process, std::string_view name, double time, double value) {
  name_process(process);
  add(fmt::format(R"("ph":"C","name":"{}","pid":{},"ts":{},"args":{{"held":{}}})", name, static_cast<int>(process),
                  time * unit_, value));
}

std::string TraceEvents::text() {
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + std::exchange(events_, {}) + "\n]}\n";
}

void add_ops(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation,
             const TraceFrame& frame, TraceEvents& events) {
  TimelineTrace trace(schedule, timeline, frame, events);
  trace.write_ops(explanation.critical_path);
  trace.write_messages(explanation.messages);
  trace.write_bubbles(explanation.bubbles);
}

std::string to_perfetto(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation) {
  // Also refuses NaN.
  if (!(timeline.makespan <= kLongest))
    reject("perfetto: a makespan of {} is beyond {}; use a larger unit of time", timeline.makespan, kLongest);
  TraceFrame frame;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) frame.tracks.push_back({w, fmt::format("worker {}", w)});
  TraceEvents events(kMicroseconds);
  add_ops(schedule, timeline, explanation, frame, events);
  TimelineTrace trace(schedule, timeline, frame, events);
  trace.write_all_reduces(explanation.all_reduces);
  trace.write_memory(explanation.memory);
  return events.text();
}

}  // namespace chimera

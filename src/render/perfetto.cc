#include "render/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/error.h"

namespace chimera {
namespace {

constexpr double kMicroseconds = 1000;  // of a unit of time
constexpr double kNanosecond = 0.001;
constexpr double kLongest = 1e12;

/// Viewers take thread 0 for the idle one.
std::size_t thread_of(std::size_t worker) { return worker + 1; }

enum Process : int { kOps = 1, kIdle, kAllReduces, kMemory };

class Trace {
 public:
  explicit Trace(const Schedule& schedule) : schedule_(schedule) {}

  void write_ops(const Timeline& timeline, const Explanation& explanation) {
    const auto critical = marked(explanation.critical_path);
    name_process(kOps, "ops", schedule_.workers.size());
    for (std::size_t w = 0; w < schedule_.workers.size(); ++w) {
      for (std::size_t i = 0; i < schedule_.workers[w].size(); ++i) {
        const Op& op = schedule_.workers[w][i];
        slice(kOps, w, to_text(op), timeline.workers[w].ops[i].start, timeline.workers[w].ops[i].end,
              fmt::format(R"("stage":{},"replica":{},"micro_batch":{},"weight_version":{},"critical":{})",
                          op.stage.value(), op.replica.value(), op.micro_batch.value(), op.weight_version,
                          critical[w][i] ? "true" : "false"));
      }
    }
  }

  /// An arrow starts inside the slice of its op, at its last nanosecond, and ends at the start of the other one.
  void write_messages(const Timeline& timeline, const std::vector<Message>& messages) {
    for (std::size_t k = 0; k < messages.size(); ++k) {
      const Message& message = messages[k];
      const TimedOp& from = timeline.workers[message.from.worker].ops[message.from.position];
      const TimedOp& to = timeline.workers[message.to.worker].ops[message.to.position];
      const double sent = std::max(from.start * kMicroseconds, from.end * kMicroseconds - kNanosecond);
      const char* name = schedule_.workers[message.from.worker][message.from.position].kind == OpKind::Forward
                             ? "activation"
                             : "gradient";
      event(
          R"("ph":"s","id":{},"cat":"message","name":"{}","pid":{},"tid":{},"ts":{},"args":{{"sent":{},"arrived":{}}})",
          k, name, int{kOps}, thread_of(message.from.worker), sent, message.sent, message.arrived);
      event(R"("ph":"f","bp":"e","id":{},"cat":"message","name":"{}","pid":{},"tid":{},"ts":{})", k, name, int{kOps},
            thread_of(message.to.worker), to.start * kMicroseconds);
    }
  }

  void write_bubbles(const std::vector<std::vector<Bubble>>& bubbles) {
    if (empty(bubbles)) return;
    name_process(kIdle, "idle", bubbles.size());
    for (std::size_t w = 0; w < bubbles.size(); ++w) {
      for (const Bubble& bubble : bubbles[w]) {
        std::string cause;
        if (bubble.waits_for) {
          const Place& place = *bubble.waits_for;
          cause = fmt::format(R"("waits_for":"{}","of_worker":{})",
                              to_text(schedule_.workers[place.worker][place.position]), place.worker);
        }
        slice(kIdle, w, to_text(bubble.cause), bubble.start, bubble.end, cause);
      }
    }
  }

  void write_all_reduces(const std::vector<std::vector<TimedAllReduce>>& all_reduces) {
    if (empty(all_reduces)) return;
    name_process(kAllReduces, "all-reduce", all_reduces.size());
    for (std::size_t w = 0; w < all_reduces.size(); ++w) {
      for (const TimedAllReduce& sum : all_reduces[w]) {
        slice(kAllReduces, w, fmt::format("all-reduce of stage {}", sum.stage.value()), sum.start, sum.end,
              fmt::format(R"("stage":{})", sum.stage.value()));
      }
    }
  }

  void write_memory(const std::vector<std::vector<MemoryPoint>>& memory) {
    if (empty(memory)) return;
    name_process(kMemory, "memory", 0);
    for (std::size_t w = 0; w < memory.size(); ++w) {
      for (const MemoryPoint& point : memory[w]) {
        event(R"("ph":"C","name":"worker {}","pid":{},"ts":{},"args":{{"held":{}}})", w, int{kMemory},
              point.time * kMicroseconds, point.amount);
      }
    }
  }

  std::string text() { return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + std::move(events_) + "\n]}\n"; }

 private:
  template <class T>
  static bool empty(const std::vector<std::vector<T>>& lists) {
    return std::all_of(lists.begin(), lists.end(), [](const auto& list) { return list.empty(); });
  }

  [[nodiscard]] std::vector<std::vector<bool>> marked(const std::vector<Place>& places) const {
    std::vector<std::vector<bool>> marks;
    for (const auto& ops : schedule_.workers) marks.emplace_back(ops.size(), false);
    for (const Place& place : places) marks[place.worker][place.position] = true;
    return marks;
  }

  template <class... Arguments>
  void event(fmt::format_string<Arguments...> fields, Arguments&&... arguments) {
    events_ += events_.empty() ? "\n{" : ",\n{";
    fmt::format_to(std::back_inserter(events_), fields, std::forward<Arguments>(arguments)...);
    events_ += '}';
  }

  void slice(Process process, std::size_t worker, std::string_view name, double start, double end,
             std::string_view arguments) {
    event(R"("ph":"X","name":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}})", name, int{process},
          thread_of(worker), start * kMicroseconds, (end - start) * kMicroseconds, arguments);
  }

  void name_process(Process process, const char* name, std::size_t num_workers) {
    event(R"("ph":"M","name":"process_name","pid":{},"args":{{"name":"{}"}})", int{process}, name);
    event(R"("ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}})", int{process}, int{process});
    for (std::size_t w = 0; w < num_workers; ++w) {
      event(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"worker {}"}})", int{process},
            thread_of(w), w);
      event(R"("ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}})", int{process},
            thread_of(w), w);
    }
  }

  const Schedule& schedule_;
  std::string events_;
};

}  // namespace

std::string to_perfetto(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation) {
  if (!(timeline.makespan <= kLongest)) {
    throw ConfigError(
        fmt::format("perfetto: a makespan of {} is beyond {}; use a larger unit of time", timeline.makespan, kLongest));
  }
  Trace trace(schedule);
  trace.write_ops(timeline, explanation);
  trace.write_messages(timeline, explanation.messages);
  trace.write_bubbles(explanation.bubbles);
  trace.write_all_reduces(explanation.all_reduces);
  trace.write_memory(explanation.memory);
  return trace.text();
}

}  // namespace chimera

#include "render/trace_events.h"

#include <fmt/format.h>

namespace chimera {
namespace {

/// Viewers take thread 0 for the idle one.
std::size_t thread_of(std::size_t track) { return track + 1; }

const char* name_of(TraceProcess process) {
  switch (process) {
    case TraceProcess::Ops: return "ops";
    case TraceProcess::Idle: return "idle";
    case TraceProcess::AllReduces: return "all-reduce";
    case TraceProcess::Memory: return "memory";
    case TraceProcess::Transfers: return "transfers";
  }
  return "";
}

}  // namespace

void TraceEvents::add(const std::string& fields) {
  events_ += events_.empty() ? "\n{" : ",\n{";
  events_ += fields + '}';
}

void TraceEvents::name_process(TraceProcess process) {
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

}  // namespace chimera

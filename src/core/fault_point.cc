#include "core/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

#include "core/choices.h"
#include "core/clock.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "core/value_text.h"

namespace chimera {
namespace {

/// Actions by their names in CHIMERA_FAULT. fault_point() or its caller does those without a function.
const std::map<std::string_view, void (*)()> kActions = {{"kill", [] { ::kill(::getpid(), SIGKILL); }},
                                                         {"kill-launcher", [] { ::kill(::getppid(), SIGKILL); }},
                                                         {"terminate", [] { ::kill(::getpid(), SIGTERM); }},
                                                         {"terminate-launcher", [] { ::kill(::getppid(), SIGTERM); }},
                                                         {"segfault", [] { ::raise(SIGSEGV); }},
                                                         {"stop", [] { ::raise(SIGSTOP); }},
                                                         {"hang",
                                                          [] {
                                                            while (true) ::pause();
                                                          }},
                                                         {"throw", nullptr},
                                                         {"slow", nullptr},
                                                         {"nan", nullptr},
                                                         {"flip", nullptr},
                                                         {"delay", nullptr}};

// fault_point.h explains each; a new point must be added here and there.
const std::vector<std::string> kPoints = {
    "start",         "rendezvous",   "connected", "step",      "forward",   "backward",
    "all-reduce",    "sum",          "vote",      "optimizer", "updated",   "leave",
    "restore",       "resume",       "tokenized", "save",      "saved",     "before-manifest",
    "before-rename", "after-rename", "message",   "moments",   "handed-in", "end-barrier",
    "export",        "link"};

constexpr std::chrono::milliseconds kSlowness{20};

struct Fault {
  std::string action;  // A name in kActions
  std::string point;
  int rank = 0;
  int peer = -1;  // Other end of the link
  int count = 1;
  int start = 1;      // Number of the job's start; 0: every start
  double factor = 0;  // Of slow*FACTOR, or seconds of delay*SECONDS
  int last = 0;       // Last call of FROM-TO; 0: without end

  [[nodiscard]] bool is_delay() const { return action == "delay"; }
};

int required_number(std::string_view text) {
  if (const auto number = parse_number<int>(text)) return *number;
  reject("CHIMERA_FAULT: '{}' is not a number; expected ACTION@POINT[:RANK[:COUNT[:START]]]", text);
}

// Names and numbers are checked before the run starts: a plan with a typing error would test nothing and pass.
Fault parse_fault(std::string_view text) {
  const auto at = text.find('@');
  const std::string_view action = text.substr(0, at);
  const auto star = action.find('*');
  Fault fault{.action = std::string(action.substr(0, star)), .point = {}};
  if (at == text.npos || !kActions.contains(fault.action))
    reject(
        "CHIMERA_FAULT: expected ACTION@POINT[:RANK[:COUNT[:START]]] with ACTION kill, kill-launcher, terminate, "
        "terminate-launcher, throw, segfault, stop, hang, slow, nan, flip or delay");
  const std::vector<std::string_view> fields = split_at(':', text.substr(at + 1));
  fault.point = fields[0];
  if (std::ranges::count(kPoints, fault.point) == 0)
    reject("CHIMERA_FAULT: {}", unknown_name("point", fault.point, kPoints));
  const auto is_at = [&](const std::vector<std::string>& points) {
    return std::ranges::count(points, fault.point) > 0;
  };
  if (fault.action == "nan" && !is_at({"forward", "backward", "all-reduce"}))
    reject("CHIMERA_FAULT: nan needs a tensor, at forward, backward or all-reduce, not at {}", fault.point);
  if (fault.action == "flip" && !is_at({"step", "updated", "moments", "message"}))
    reject("CHIMERA_FAULT: flip needs bits, at step, updated, moments or message, not at {}", fault.point);
  if (star != action.npos || fault.is_delay() || fault.point == "link") {
    const auto factor = parse_number<double>(star == action.npos ? "" : action.substr(star + 1));
    const bool is_slow = fault.action == "slow" && fault.point == "step" && factor && *factor >= 1;
    if (!is_slow && !(fault.is_delay() && fault.point == "link" && factor && *factor > 0))
      reject("CHIMERA_FAULT: a number is for slow*FACTOR@step, at least 1, and delay*SECONDS@link:RANK-RANK, not {}",
             text);
    fault.factor = *factor;
  }
  if (fault.is_delay()) {
    const auto ends = split_at('-', fields.size() > 1 ? fields[1] : "");
    fault.rank = required_number(ends[0]);
    fault.peer = required_number(ends.size() > 1 ? ends[1] : "");
  } else if (fields.size() > 1) {
    fault.rank = required_number(fields[1]);
  }
  if (fields.size() > 2) {
    const auto calls = fault.factor > 0 ? split_at('-', fields[2]) : std::vector{fields[2]};
    fault.count = required_number(calls[0]);
    if (calls.size() > 1) fault.last = required_number(calls[1]);
  }
  if (fields.size() > 3) fault.start = required_number(fields[3]);
  return fault;
}

std::vector<Fault> read_faults() {
  const char* variable = std::getenv("CHIMERA_FAULT");
  if (variable == nullptr || *variable == '\0') return {};
  return mapped<Fault>(split_at_commas(variable), parse_fault);
}

// Read once: fault points are passed in every op, on several threads.
const std::vector<Fault>& planned_faults() {
  static const std::vector<Fault> value = read_faults();
  return value;
}

// A fault must not repeat after the restart that it causes, or no job would ever recover.
/// A launcher that restarts the job sets the variable.
int start_of_job() {
  static const char* const restarts = std::getenv("CHIMERA_START");
  return restarts == nullptr ? 1 : 1 + required_number(restarts);
}

// Ranks may be threads of one process, so rank and counters belong to threads.
thread_local std::vector<int> passages;          // [fault]: calls of its point
thread_local double slowness = 1;                // Of slow*FACTOR
thread_local std::map<int, double> link_delays;  // [rank]: seconds of delay*SECONDS

}  // namespace

void check_fault_plan() { static_cast<void>(planned_faults()); }

int& fault_rank() {
  thread_local int rank = 0;
  return rank;
}

// Calls are counted per thread, because ranks may be threads of one process.
bool fault_point(std::string_view point) {
  const auto& planned = planned_faults();
  if (planned.empty()) return false;
  passages.resize(planned.size(), 0);
  bool spoils = false;
  if (point == "step") {
    slowness = 1;
    link_delays.clear();
  }
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const Fault& fault = planned[i];
    if (point != (fault.is_delay() ? "step" : fault.point)) continue;
    if (fault_rank() != fault.rank && !(fault.is_delay() && fault_rank() == fault.peer)) continue;
    if (fault.start != 0 && fault.start != start_of_job()) continue;
    ++passages[i];
    if (fault.factor > 0) {
      if (passages[i] < fault.count || (fault.last > 0 && passages[i] > fault.last)) continue;
      if (fault.is_delay())
        link_delays[fault_rank() == fault.rank ? fault.peer : fault.rank] += fault.factor;
      else
        slowness *= fault.factor;
      continue;
    }
    // From the given call on, while other actions happen in that call only.
    if (fault.action == "slow" && passages[i] >= fault.count) std::this_thread::sleep_for(kSlowness);
    if (passages[i] != fault.count) continue;
    if (fault.action == "throw") throw Error("fault injected at " + fault.point);
    if (const auto act = kActions.at(fault.action)) act();
    spoils = spoils || fault.action == "nan" || fault.action == "flip";
  }
  return spoils;
}

void stretch_op(double seconds) {
  if (slowness > 1) std::this_thread::sleep_for(std::chrono::duration<double>((slowness - 1) * seconds));
}

void delay_message(int from, double sent) {
  const auto found = link_delays.find(from);
  if (found == link_delays.end()) return;
  if (sent == 0)
    throw ConfigError("CHIMERA_FAULT: delay needs messages with a time, which this transport does not send");
  // At most the delay itself: the clock of another host may differ.
  const double wait = std::min(sent + found->second - monotonic_seconds(), found->second);
  if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
}

}  // namespace chimera

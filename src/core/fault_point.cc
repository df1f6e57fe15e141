#include "core/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/choices.h"
#include "core/error.h"
#include "core/value_text.h"

namespace chimera {
namespace {

enum class FaultAction : std::uint8_t {
  Kill,
  KillLauncher,
  Terminate,
  TerminateLauncher,
  Throw,
  Segfault,
  Stop,
  Hang,
  Slow,
  NotANumber,
  Flip
};
/// [action]: its name in CHIMERA_FAULT.
constexpr std::array<std::string_view, 11> kFaultActions = {"kill",  "kill-launcher", "terminate", "terminate-launcher",
                                                            "throw", "segfault",      "stop",      "hang",
                                                            "slow",  "nan",           "flip"};

constexpr std::chrono::milliseconds kSlowness{20};

struct Fault {
  FaultAction action = FaultAction::Kill;
  std::string point;
  int rank = 0;
  int count = 1;
  int start = 1;      // Number of the job's start; 0: every start
  double factor = 0;  // Of slow*FACTOR
  int last = 0;       // Last call of FROM-TO; 0: without end
};

int required_number(std::string_view text) {
  if (const auto number = parse_number<int>(text)) return *number;
  throw ConfigError("CHIMERA_FAULT: '" + std::string(text) +
                    "' is not a number; expected ACTION@POINT[:RANK[:COUNT[:START]]]");
}

void require_known(const std::string& point) {
  // fault_point.h explains each; a new point must be added here and there.
  static const std::vector<std::string> points = {
      "start", "rendezvous",      "connected",     "step",         "forward", "backward", "all-reduce", "sum",
      "vote",  "optimizer",       "updated",       "leave",        "restore", "resume",   "tokenized",  "save",
      "saved", "before-manifest", "before-rename", "after-rename", "message", "moments",  "handed-in",  "end-barrier",
      "export"};
  if (std::ranges::find(points, point) == points.end()) {
    throw ConfigError("CHIMERA_FAULT: " + unknown_name("point", point, points));
  }
}

// Names and numbers are checked before the run starts: a plan with a typing error would test nothing and pass.
Fault parse_fault(std::string_view text) {
  const auto at = text.find('@');
  const std::string_view action = text.substr(0, at);
  const auto star = action.find('*');
  const auto named = std::ranges::find(kFaultActions, action.substr(0, star));
  if (at == std::string_view::npos || named == kFaultActions.end()) {
    throw ConfigError(
        "CHIMERA_FAULT: expected ACTION@POINT[:RANK[:COUNT[:START]]] with ACTION kill, kill-launcher, terminate, "
        "terminate-launcher, throw, segfault, stop, hang, slow, nan or flip");
  }
  Fault fault{.action = static_cast<FaultAction>(named - kFaultActions.begin()), .point = {}};
  std::string_view rest = text.substr(at + 1);
  const auto next = [&rest] {
    const auto colon = rest.find(':');
    const std::string_view field = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
    return field;
  };
  fault.point = std::string(next());
  require_known(fault.point);
  if (fault.action == FaultAction::NotANumber && fault.point != "forward" && fault.point != "backward" &&
      fault.point != "all-reduce") {
    throw ConfigError("CHIMERA_FAULT: nan needs a tensor, at forward, backward or all-reduce, not at " + fault.point);
  }
  static const std::vector<std::string> with_bits = {"step", "updated", "moments", "message"};
  if (fault.action == FaultAction::Flip && std::ranges::find(with_bits, fault.point) == with_bits.end()) {
    throw ConfigError("CHIMERA_FAULT: flip needs bits, at step, updated, moments or message, not at " + fault.point);
  }
  if (star != std::string_view::npos) {
    const auto factor = parse_number<double>(action.substr(star + 1));
    if (fault.action != FaultAction::Slow || fault.point != "step" || !factor || !(*factor >= 1)) {
      throw ConfigError("CHIMERA_FAULT: a factor is for slow*FACTOR@step, at least 1, not " + std::string(text));
    }
    fault.factor = *factor;
  }
  if (!rest.empty()) fault.rank = required_number(next());
  if (!rest.empty()) {
    const std::string_view count = next();
    const auto dash = fault.factor > 0 ? count.find('-') : std::string_view::npos;
    fault.count = required_number(count.substr(0, dash));
    if (dash != std::string_view::npos) fault.last = required_number(count.substr(dash + 1));
  }
  if (!rest.empty()) fault.start = required_number(next());
  return fault;
}

std::vector<Fault> read_faults() {
  const char* variable = std::getenv("CHIMERA_FAULT");
  std::vector<Fault> faults;
  if (variable == nullptr || *variable == '\0') return faults;
  for (const std::string_view fault : split_at_commas(variable)) faults.push_back(parse_fault(fault));
  return faults;
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
thread_local int told_rank = 0;
thread_local std::vector<int> passages;  // [fault]: calls of its point
thread_local double slowness = 1;        // Of slow*FACTOR

void fail(const Fault& what) {
  switch (what.action) {
    case FaultAction::Kill: ::kill(::getpid(), SIGKILL); break;
    case FaultAction::KillLauncher: ::kill(::getppid(), SIGKILL); break;
    case FaultAction::Terminate: ::kill(::getpid(), SIGTERM); break;
    case FaultAction::TerminateLauncher: ::kill(::getppid(), SIGTERM); break;
    case FaultAction::Throw: throw Error("fault injected at " + what.point);
    case FaultAction::Segfault: ::raise(SIGSEGV); break;
    case FaultAction::Stop: ::raise(SIGSTOP); break;
    case FaultAction::Hang:
      while (true) ::pause();
    case FaultAction::Slow:        // Done by fault_point()
    case FaultAction::NotANumber:  // Done by the caller
    case FaultAction::Flip: break;
  }
}

}  // namespace

void check_fault_plan() { static_cast<void>(planned_faults()); }

void set_fault_rank(int rank) { told_rank = rank; }

int fault_rank() { return told_rank; }

// Calls are counted per thread, because ranks may be threads of one process.
bool fault_point(std::string_view point) {
  const auto& planned = planned_faults();
  if (planned.empty()) return false;
  passages.resize(planned.size(), 0);
  bool spoils = false;
  if (point == "step") slowness = 1;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const Fault& fault = planned[i];
    if (fault.point != point || fault.rank != told_rank) continue;
    if (fault.start != 0 && fault.start != start_of_job()) continue;
    ++passages[i];
    if (fault.factor > 0) {
      if (passages[i] >= fault.count && (fault.last == 0 || passages[i] <= fault.last)) slowness *= fault.factor;
      continue;
    }
    // From the given call on, while other actions happen in that call only.
    if (fault.action == FaultAction::Slow && passages[i] >= fault.count) std::this_thread::sleep_for(kSlowness);
    if (passages[i] != fault.count) continue;
    fail(fault);
    spoils = spoils || fault.action == FaultAction::NotANumber || fault.action == FaultAction::Flip;
  }
  return spoils;
}

void stretch_op(double seconds) {
  if (slowness > 1) std::this_thread::sleep_for(std::chrono::duration<double>((slowness - 1) * seconds));
}

}  // namespace chimera

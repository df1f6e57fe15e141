#include "core/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/nearest.h"
#include "core/parse_number.h"

namespace chimera {
namespace {

struct Fault {
  std::string action;
  std::string point;
  int rank = 0;
  int count = 1;
  int start = 1;  // of the job; 0: every one
};

int required_number(std::string_view text) {
  if (const auto number = parse_number<int>(text)) return *number;
  throw ConfigError("CHIMERA_FAULT: '" + std::string(text) +
                    "' is not a number; expected ACTION@POINT[:RANK[:COUNT[:START]]]");
}

void require_known(const std::string& point) {
  static const std::vector<std::string> points = {
      "start",     "rendezvous", "connected", "step", "forward", "backward",        "all-reduce",    "sum",
      "optimizer", "updated",    "tokenized", "save", "saved",   "before-manifest", "before-rename", "after-rename"};
  if (std::ranges::find(points, point) == points.end()) {
    throw ConfigError("CHIMERA_FAULT: " + unknown_name("point", point, points));
  }
}

std::optional<Fault> read_fault() {
  const char* variable = std::getenv("CHIMERA_FAULT");
  if (variable == nullptr || *variable == '\0') return std::nullopt;
  const std::string_view text = variable;
  const auto at = text.find('@');
  Fault fault{.action = std::string(text.substr(0, at)), .point = {}};
  static const std::vector<std::string> actions = {
      "kill", "kill-launcher", "terminate", "terminate-launcher", "throw", "segfault", "stop", "hang", "nan", "flip"};
  if (at == std::string_view::npos || std::ranges::find(actions, fault.action) == actions.end()) {
    throw ConfigError(
        "CHIMERA_FAULT: expected ACTION@POINT[:RANK[:COUNT[:START]]] with ACTION kill, kill-launcher, terminate, "
        "terminate-launcher, throw, segfault, stop, hang, nan or flip");
  }
  std::string_view rest = text.substr(at + 1);
  const auto next = [&rest] {
    const auto colon = rest.find(':');
    const std::string_view field = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
    return field;
  };
  fault.point = std::string(next());
  require_known(fault.point);
  if (fault.action == "nan" && fault.point != "forward" && fault.point != "backward" && fault.point != "all-reduce") {
    throw ConfigError("CHIMERA_FAULT: nan needs a tensor, at forward, backward or all-reduce, not at " + fault.point);
  }
  if (fault.action == "flip" && fault.point != "updated") {
    throw ConfigError("CHIMERA_FAULT: flip needs weights, at updated, not at " + fault.point);
  }
  if (!rest.empty()) fault.rank = required_number(next());
  if (!rest.empty()) fault.count = required_number(next());
  if (!rest.empty()) fault.start = required_number(next());
  return fault;
}

const std::optional<Fault>& fault() {
  static const std::optional<Fault> value = read_fault();
  return value;
}

/// Which start of the job this is, from 1: a launcher that has started it before says so.
int start_of_job() {
  static const char* const restarts = std::getenv("CHIMERA_START");
  return restarts == nullptr ? 1 : 1 + required_number(restarts);
}

thread_local int told_rank = 0;
thread_local int passages = 0;

void fail(const Fault& what) {
  if (what.action == "kill") ::kill(::getpid(), SIGKILL);
  if (what.action == "kill-launcher") ::kill(::getppid(), SIGKILL);
  if (what.action == "terminate") ::kill(::getpid(), SIGTERM);
  if (what.action == "terminate-launcher") ::kill(::getppid(), SIGTERM);
  if (what.action == "stop") ::raise(SIGSTOP);
  while (what.action == "hang") ::pause();
  if (what.action == "segfault") ::raise(SIGSEGV);
  if (what.action == "throw") throw Error("fault injected at " + what.point);
}

}  // namespace

void check_fault_plan() { static_cast<void>(fault()); }

void set_fault_rank(int rank) { told_rank = rank; }

int fault_rank() { return told_rank; }

bool fault_point(std::string_view point) {
  const auto& planned = fault();
  if (!planned || planned->point != point || planned->rank != told_rank) return false;
  if (planned->start != 0 && planned->start != start_of_job()) return false;
  if (++passages != planned->count) return false;
  fail(*planned);
  return planned->action == "nan" || planned->action == "flip";
}

}  // namespace chimera

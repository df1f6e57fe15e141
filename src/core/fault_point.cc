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
};

int required_number(std::string_view text) {
  if (const auto number = parse_number<int>(text)) return *number;
  throw ConfigError("CHIMERA_FAULT: '" + std::string(text) + "' is not a number; expected ACTION@POINT[:RANK[:COUNT]]");
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
  const bool known = fault.action == "kill" || fault.action == "kill-launcher" || fault.action == "throw" ||
                     fault.action == "segfault" || fault.action == "stop" || fault.action == "hang" ||
                     fault.action == "nan" || fault.action == "flip";
  if (at == std::string_view::npos || !known) {
    throw ConfigError(
        "CHIMERA_FAULT: expected ACTION@POINT[:RANK[:COUNT]] with ACTION kill, kill-launcher, throw, segfault, stop, "
        "hang, nan or flip");
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
  return fault;
}

const std::optional<Fault>& fault() {
  static const std::optional<Fault> value = read_fault();
  return value;
}

thread_local int told_rank = 0;
thread_local int passages = 0;

void fail(const Fault& what) {
  if (what.action == "kill") ::kill(::getpid(), SIGKILL);
  if (what.action == "kill-launcher") ::kill(::getppid(), SIGKILL);
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
  if (++passages != planned->count) return false;
  fail(*planned);
  return planned->action == "nan" || planned->action == "flip";
}

}  // namespace chimera

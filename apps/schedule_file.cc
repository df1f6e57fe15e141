#include "schedule_file.h"

#include <fmt/format.h>

#include <iostream>

#include "check/check_schedule.h"
#include "core/error.h"
#include "schedule/schedule_csv.h"

namespace chimera::apps {
namespace {

Schedule read(std::istream& in, const std::string& path) {
  TextSource text(in, path);
  ReadSchedule result = schedule_from_text(text);
  for (const std::string& note : result.notes) std::cerr << "chimera: note: " << note << '\n';
  return std::move(result.schedule);
}

}  // namespace

bool names_schedule_file(const std::string& name) {
  return name == "-" || name.ends_with(".json") || name.ends_with(".csv") || name.find('/') != std::string::npos;
}

void require_no_shape(const ShapeFlags& shape, const std::string& what) {
  if (!shape.given()) return;
  throw ConfigError(what + " has a shape already; leave out --stages, --micro-batches and the other shape flags");
}

Schedule load_schedule(const std::string& path) {
  if (path == "-") return read(std::cin, path);
  std::ifstream file = open_input(path);
  return read(file, path);
}

Schedule read_schedule(const std::string& path) {
  Schedule schedule = load_schedule(path);
  const auto violations = check(schedule);
  if (!violations.empty()) {
    throw ScheduleError(fmt::format("{}: {}; `chimera check {}` lists all", path, violations.front().message, path));
  }
  return schedule;
}

}  // namespace chimera::apps

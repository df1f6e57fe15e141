#include "flags/files.h"

#include <fmt/format.h>

#include <iostream>

#include "check/check_schedule.h"
#include "checkpoint/checkpoint_folder.h"
#include "core/cgroup.h"
#include "core/console.h"
#include "core/error.h"
#include "core/files.h"
#include "core/shell_words.h"
#include "hugging_face/model_folder.h"
#include "program.h"
#include "schedule/schedule_csv.h"

namespace chimera::apps {

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) print_message(note);
}

Schedule load_schedule(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // Of kMaxOpsOfFile ops
  ReadSchedule result = schedule_from_text(read_whole(path, kMostBytes), path);
  for (const std::string& note : result.notes) std::cerr << "chimera: note: " << note << '\n';
  // A plain CSV file has no name for its schedule.
  if (result.schedule.name == "csv")
    result.schedule.name = path == "-" ? "stdin" : std::filesystem::path(path).stem().string();
  return std::move(result.schedule);
}

Schedule read_schedule(const std::string& path) {
  Schedule schedule = load_schedule(path);
  const auto violations = check(schedule);
  if (!violations.empty()) {
    // One violation is enough for a command that wants to use the schedule.
    throw ScheduleError(
        fmt::format("{}: {}; `chimera check {}` lists all", path, violations.front().message, shell_word(path)));
  }
  return schedule;
}

ModelConfig find_model_or_run(const std::string& name) {
  return find_model_or_folder(is_folder(name) ? resolve_model_folder(name, available_cores()) : name);
}

void use_files(ProblemRequest& request) {
  request.find = find_model_or_run;
  request.load_machine = [](const std::string& machine) { return read_machine(machine_file(machine)); };
}

}  // namespace chimera::apps

#pragma once

// The files that a command line names: schedules, models and machine profiles. A schedule is read from the path of the
// NAME argument, or from standard input for `-`. A model may be given by a file or folder, and a machine by a path or
// the name of a shipped profile.

#include <string>
#include <vector>

#include "answers/plan_request.h"
#include "schedule/schedule.h"

namespace chimera::apps {

/// Reads a schedule file, or standard input for `-`, without validation. Prints a note on standard error if it ignores
/// a part of the file. Throws ConfigError if the file cannot be opened or parsed.
[[nodiscard]] Schedule load_schedule(const std::string& path);

/// Reads a schedule file as load_schedule() does, and validates it. Throws ScheduleError with the first violation.
[[nodiscard]] Schedule read_schedule(const std::string& path);

/// Prints each line on standard error.
void print_notes(const std::vector<std::string>& notes);

/// Returns the model that `name` names: a preset, a TOML file, a Hugging Face folder, a checkpoint, or a folder of
/// checkpoints (the newest valid one counts). Throws ConfigError if there is none, or if it is invalid.
[[nodiscard]] ModelConfig find_model_or_run(const std::string& name);

/// Makes a planning problem find models and machines by the names of the command line: models by find_model_or_run(),
/// machines by machine_file() (apps/program.h). `chimera plan` adds the flags of a ProblemRequest; `chimera train
/// --plan auto` has flags of its own, and copies their values.
void use_files(ProblemRequest& request);

}  // namespace chimera::apps

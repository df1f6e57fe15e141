#pragma once

// The planning problem of a command line. Models are also files and folders, machines paths or names of shipped
// profiles. `chimera plan` adds all flags; `chimera train --plan auto` has flags of its own, and copies their values.

#include "answers/plan_request.h"
#include "plan/train_flags.h"

namespace chimera::apps {

/// Returns the model as find_model_or_folder() does, also of a checkpoint or a folder of checkpoints (the newest).
[[nodiscard]] ModelConfig find_model_or_run(const std::string& name);

/// Makes a request find models and machines by the names of the command line: models by find_model_or_run(), machines
/// by machine_file() (program.h).
void use_files(ProblemRequest& request);

/// Returns `name`, or the absolute path if it is a file or folder: files of flags may be used in another folder.
[[nodiscard]] std::string absolute_if_path(const std::string& name);

/// Returns flags of `chimera train` for the model, sequence, number type, optimizer and device of the problem.
[[nodiscard]] std::vector<TrainFlag> workload_flags(const ProblemRequest& request, const PlanProblem& problem);

}  // namespace chimera::apps

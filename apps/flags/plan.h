#pragma once

// The planning problem of a command line: how to train a model fastest on a machine (ProblemRequest). A model may be
// given by a file or folder, and a machine by a path or the name of a shipped profile. `chimera plan` adds the flags of
// a ProblemRequest; `chimera train --plan auto` has flags of its own, and copies their values.

#include "answers/plan_request.h"

namespace chimera::apps {

/// Returns the model that `name` names: a preset, a TOML file, a Hugging Face folder, a checkpoint, or a folder of
/// checkpoints (the newest valid one counts). Throws ConfigError if there is none, or if it is invalid.
[[nodiscard]] ModelConfig find_model_or_run(const std::string& name);

/// Makes a request find models and machines by the names of the command line: models by find_model_or_run(), machines
/// by machine_file() (apps/program.h).
void use_files(ProblemRequest& request);

}  // namespace chimera::apps

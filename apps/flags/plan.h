#pragma once

// The planning problem of a command line. Models are also files and folders, machines paths or names of shipped
// profiles. `chimera plan` adds all flags; `chimera train --plan auto` has flags of its own, and copies their values.

#include <CLI/CLI.hpp>

#include <vector>

#include "answers/plan_request.h"
#include "flags/model.h"
#include "plan/train_flags.h"

namespace chimera::apps {

/// Makes a request find models and machines as the command line names them.
void use_files(ProblemRequest& request);

struct PlanFlags : ProblemRequest {
  PlanFlags() { use_files(*this); }
};

/// Returns flags of `chimera train` for the model, sequence, number type, optimizer and device of the problem, but not
/// for dropout.
[[nodiscard]] std::vector<TrainFlag> workload_flags(const ProblemRequest& request, const PlanProblem& problem);

/// Adds --recompute and --offload, which select stages: those whose forward runs again before the backward, and those
/// whose activations wait for the backward in host memory. `usual` describes the default of --recompute in --help.
void add_stage_choices(CLI::App& app, StageChoice& recompute, StageChoice& offload, const char* usual);

}  // namespace chimera::apps

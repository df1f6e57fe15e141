#include "flags/plan.h"

#include <filesystem>

#include "flags/flag_door.h"
#include "hugging_face/model_folder.h"
#include "program.h"

namespace chimera::apps {

void use_files(ProblemRequest& request) {
  request.find = find_model_or_folder;
  request.load_machine = [](const std::string& machine) { return read_machine(machine_file(machine)); };
}

std::vector<TrainFlag> workload_flags(const ProblemRequest& request, const PlanProblem& problem) {
  std::vector<TrainFlag> flags = {{std::filesystem::is_directory(request.model) ? "from" : "model", request.model}};
  if (request.fields.layers) flags.push_back({"layers", *request.fields.layers});
  if (request.fields.hidden) flags.push_back({"hidden", *request.fields.hidden});
  if (request.fields.heads) flags.push_back({"heads", *request.fields.heads});
  if (request.fields.key_value_heads) flags.push_back({"key-value-heads", *request.fields.key_value_heads});
  if (request.fields.vocabulary) flags.push_back({"vocabulary", *request.fields.vocabulary});
  if (request.fields.tied) flags.push_back({"tied", std::string(*request.fields.tied ? "true" : "false")});
  flags.push_back({"sequence", problem.workload.sequence});
  flags.push_back({"dtype", to_text(request.dtype_for(problem.model))});
  flags.push_back({"optimizer", to_text(request.optimizer)});
  // Profiles of GPUs have no cores.
  if (problem.machine.cores == 0) flags.push_back({"device", to_text(DeviceKind::Cuda)});
  return flags;
}

void add_stage_choices(CLI::App& app, StageChoice& recompute, StageChoice& offload, const char* usual) {
  FlagDoor door(app);
  visit_stage_choices(door, recompute, offload, usual);
}

}  // namespace chimera::apps

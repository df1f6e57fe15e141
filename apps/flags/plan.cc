#include "flags/plan.h"

#include "checkpoint/checkpoint_folder.h"
#include "core/cgroup.h"
#include "core/files.h"
#include "hugging_face/model_folder.h"
#include "program.h"

namespace chimera::apps {

ModelConfig find_model_or_run(const std::string& name) {
  return find_model_or_folder(is_folder(name) ? resolve_model_folder(name, available_cores()) : name);
}

void use_files(ProblemRequest& request) {
  request.find = find_model_or_run;
  request.load_machine = [](const std::string& machine) { return read_machine(machine_file(machine)); };
}

std::string absolute_if_path(const std::string& name) {
  return path_exists(name) ? std::filesystem::absolute(name).string() : name;
}

std::vector<TrainFlag> workload_flags(const ProblemRequest& request, const PlanProblem& problem) {
  std::vector<TrainFlag> flags = {{is_folder(request.model) ? "from" : "model", absolute_if_path(request.model)}};
  if (request.fields.layers) flags.push_back({"layers", *request.fields.layers});
  if (request.fields.hidden) flags.push_back({"hidden", *request.fields.hidden});
  if (request.fields.heads) flags.push_back({"heads", *request.fields.heads});
  if (request.fields.key_value_heads) flags.push_back({"key-value-heads", *request.fields.key_value_heads});
  if (request.fields.vocabulary) flags.push_back({"vocabulary", *request.fields.vocabulary});
  if (request.fields.tied) flags.push_back({"tied", std::string(*request.fields.tied ? "true" : "false")});
  flags.push_back({"sequence", problem.workload.sequence});
  flags.push_back({"dtype", to_text(request.dtype_for(problem.model))});
  flags.push_back({"optimizer", to_text(request.optimizer)});
  if (request.dropout)
    flags.push_back({"dropout", std::string("0.1")});  // Memory and time are those of any probability
  // Profiles of GPUs have no cores.
  if (problem.machine.cores == 0) flags.push_back({"device", to_text(DeviceKind::Cuda)});
  return flags;
}

}  // namespace chimera::apps

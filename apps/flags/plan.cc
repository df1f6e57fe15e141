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

TrainFlags workload_flags(const ProblemRequest& request, const PlanProblem& problem) {
  const ModelOverrides& fields = request.fields;
  TrainFlags flags;
  flags[is_folder(request.model) ? "from" : "model"] = absolute_if_path(request.model);
  if (fields.layers) flags["layers"] = *fields.layers;
  if (fields.hidden) flags["hidden"] = *fields.hidden;
  if (fields.heads) flags["heads"] = *fields.heads;
  if (fields.key_value_heads) flags["key-value-heads"] = *fields.key_value_heads;
  if (fields.vocabulary) flags["vocabulary"] = *fields.vocabulary;
  if (fields.tied) flags["tied"] = *fields.tied ? "true" : "false";
  flags["sequence"] = problem.workload.sequence;
  flags["dtype"] = to_text(request.dtype_for(problem.model));
  flags["optimizer"] = to_text(request.optimizer);
  if (request.dropout) flags["dropout"] = "0.1";  // Memory and time are those of any probability
  // Profiles of GPUs have no cores.
  if (problem.machine.cores == 0) flags["device"] = to_text(DeviceKind::Cuda);
  return flags;
}

}  // namespace chimera::apps

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

}  // namespace chimera::apps

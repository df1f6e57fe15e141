// run_cases IN OUT [IN OUT ...]: reads models, weights and inputs (reference_case.h), and writes the outputs of
// Chimera's stages: `logits`, `loss`, `gradients/NAME`, for BERT also `sentence_logits`.
// tests/python/hugging_face_test.py compares them with Hugging Face.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <exception>

#include "core/console.h"
#include "model/element_types.h"
#include "model/examples.h"
#include "model/reference_case.h"
#include "model/transformer_stage.h"

namespace chimera {
namespace {

std::map<std::string, at::Tensor> results_of(const ReferenceCase& reference) {
  std::map<std::string, at::Tensor> results;
  std::vector<std::unique_ptr<Stage>> stages;
  stages.push_back(reference.load(whole(reference.config)));
  const auto& stage = dynamic_cast<const TransformerStage&>(*stages.front());
  {
    const at::NoGradGuard no_graph;
    const at::Tensor hidden = stage.hidden_states({}, reference.batch);
    results["logits"] = stage.logits(hidden);
    if (reference.config.family == Family::Bert) results["sentence_logits"] = stage.sentence_logits(hidden);
  }
  results["loss"] = at::scalar_tensor(run_stages(stages, reference.batch), at::kDouble);
  if (reference.tied) reference.tied->add_accumulators();
  std::vector<const ParameterGroup*> groups = {stages.front().get()};
  if (reference.tied) groups.push_back(reference.tied.get());
  for (const ParameterGroup* const group : groups) {
    for (const Parameter& parameter : group->parameters())
      results["gradients/" + parameter.name] = parameter.value.grad();
  }
  return results;
}

int run(int count, char** arguments) {
  at::set_num_threads(1);
  try {
    for (int i = 1; i + 1 < count; i += 2) write_safetensors(arguments[i + 1], results_of(read_case(arguments[i])));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace chimera

int main(int count, char** arguments) {
  chimera::exit_now(chimera::run(count, arguments), chimera::kDrainAfterFailure);
}

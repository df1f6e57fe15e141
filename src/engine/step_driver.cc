#include "engine/step_driver.h"

#include <utility>

namespace chimera {

StepDriver::StepDriver(const RunShape& run, UpdateRule rule, WorkerId worker, std::map<StageId, Stage*> stages,
                       Transport& transport, TensorSpec message, ProgramShape shape, ParameterGroup* tied)
    : run_(run),
      rule_(std::move(rule)),
      worker_(worker),
      executor_(worker, std::move(stages), transport, std::move(message), std::move(shape), tied) {}

StepTotals StepDriver::train(const std::vector<Instruction>& instructions, const StepHooks& hooks) {
  const StepResult result = executor_.run(instructions, hooks);
  return {.loss = sum_in_data_order(run_, result.losses) / static_cast<double>(run_.updates()),
          .gradient_norm = result.gradient_norm,
          .peak_memory_bytes = result.peak_memory_bytes,
          .is_skipped = result.is_skipped};
}

double StepDriver::validate(const Program& program, const StepHooks& hooks) {
  return sum_in_data_order(run_, executor_.run(program.workers[worker_.index()], hooks).losses);
}

double StepDriver::learning_rate(std::int64_t step) const { return rule_.learning_rate.at(step, rule_.steps); }

void StepDriver::update(Optimizer& optimizer, std::int64_t step, double gradient_norm) const {
  optimizer.step(learning_rate(step), clip_factor(gradient_norm, rule_.clip));
}

}  // namespace chimera

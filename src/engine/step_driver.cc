#include "engine/step_driver.h"

#include <algorithm>
#include <utility>

namespace chimera {

StepDriver::StepDriver(const RunShape& run, UpdateRule rule, WorkerId worker, std::map<StageId, Stage*> stages,
                       Transport& transport, TensorSpec message, ProgramShape shape, ParameterGroup* tied)
    : run_(run),
      rule_(std::move(rule)),
      worker_(worker),
      transport_(transport),
      executor_(worker, std::move(stages), transport, std::move(message), std::move(shape), tied) {}

StepResult StepDriver::train(const std::vector<Instruction>& instructions, const StepHooks& hooks,
                             std::span<const std::int64_t> micro_batch_at) {
  StepResult result = executor_.run(instructions, hooks);
  // Counts from the end of the previous step, because a rank may be late from its work between steps.
  const auto now = Clock::now();
  longest_ = std::max(longest_, now - std::exchange(last_end_, now));
  // A peer is late, not lost, as long as it takes no longer than steps have taken so far.
  transport_.note_longest_step(std::chrono::ceil<std::chrono::milliseconds>(longest_));
  result.loss = sum_in_data_order(run_, result.losses, micro_batch_at) / static_cast<double>(run_.updates());
  return result;
}

double StepDriver::validate(const Program& program, const StepHooks& hooks) {
  return sum_in_data_order(run_, executor_.run(program.workers[worker_.index()], hooks).losses);
}

double StepDriver::learning_rate(std::int64_t step) const { return rule_.learning_rate.at(step, rule_.steps); }

void StepDriver::update(Optimizer& optimizer, std::int64_t step, double gradient_norm) const {
  optimizer.step(learning_rate(step), clip_factor(gradient_norm, rule_.clip));
}

void StepDriver::update_alone(Optimizer& optimizer, std::int64_t step, double gradient_norm) const {
  optimizer.step_alone(learning_rate(step), clip_factor(gradient_norm, rule_.clip));
}

}  // namespace chimera

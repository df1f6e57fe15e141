#include "bench/run_validation.h"
#include "plan/predict.h"

namespace chimera {

RunPrediction predict_run(const MachineProfile& machine, const GridRun& run) {
  PlanProblem problem;
  problem.model = model_of(run);
  problem.machine = machine;
  if (run.transport == TransportKind::Threads) {  // tensors change hands
    problem.machine.point_to_point = {};
    problem.machine.message_copy = {};
    problem.machine.busy_delay = 0;
  }
  problem.workers = run.data_parallel * run.stages;
  problem.mini_batch = run.data_parallel * run.micro_batches * run.micro_batch_size;
  problem.memory_bytes = machine.memory_bytes;
  problem.workload.micro_batch_size = run.micro_batch_size;
  problem.workload.sequence = run.sequence;
  Candidate candidate;
  candidate.schedule = run.schedule;
  candidate.shape = {run.stages, run.micro_batches, 2};
  candidate.data_parallel = run.data_parallel;
  candidate.micro_batch_size = run.micro_batch_size;
  if (run.recomputes) {
    for (std::int64_t stage = 0; stage < run.stages; ++stage) candidate.recompute.insert(StageId(stage));
  }
  const Prediction prediction = Predictor(problem).predict(candidate);
  return {prediction.step_seconds, prediction.peak_memory_bytes};
}

}  // namespace chimera

#include "train/observe/efficiency.h"

#include <numeric>

#include "model_config/model_flops.h"
#include "train/setup/recompute.h"

namespace chimera {

double step_flops(const Job& job) {
  Workload workload = workload_of(job.options);
  workload.micro_batch_size = job.micro_batch_size();
  return model_flops(job.model, workload) * static_cast<double>(job.mini_batch() / job.micro_batch_size());
}

double Pace::seconds_left(std::int64_t step, double seconds) {
  constexpr std::size_t kSteps = 20;
  if (step == 2) last_.clear();
  last_.push_back(seconds);
  if (last_.size() > kSteps) last_.pop_front();
  const double mean = std::accumulate(last_.begin(), last_.end(), 0.0) / static_cast<double>(last_.size());
  return mean * static_cast<double>(steps_ - step);
}

}  // namespace chimera

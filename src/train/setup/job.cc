#include "train/setup/job.h"

#include <numeric>

namespace chimera {

StepsBetweenFlushes Job::steps_around(std::int64_t step) const {
  std::int64_t pause = std::gcd(options.validate_every, options.sample_every);  // gcd(a, 0) = a
  if (!options.checkpoint.folder.empty()) pause = std::gcd(pause, options.checkpoint.every.steps);
  const std::int64_t longest = pause > 0 ? pause : options.steps;
  const std::int64_t first = step / longest * longest;
  return {first, std::min(longest, options.steps - first)};
}

}  // namespace chimera

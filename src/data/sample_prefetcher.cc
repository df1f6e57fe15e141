#include "data/sample_prefetcher.h"

namespace chimera {

std::vector<Sample> samples_at(const Samples& samples, const BatchPlace& place) {
  std::vector<Sample> result;
  for (std::int64_t i = 0; i < place.size; ++i) {
    result.push_back(samples.sample(place.step, place.first + i, place.mini_batch));
  }
  return result;
}

}  // namespace chimera

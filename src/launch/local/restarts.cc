#include "launch/local/restarts.h"

#include <fmt/format.h>
#include <algorithm>

namespace chimera {

// Two counters: failures in a row in the same step, which point to a fault of the job itself, and failures without a
// step further than ever before, which point to a machine that needs time. The pause doubles with the second: 0, 1, 2,
// 4, ... seconds, at most a minute. A job that gets further each time restarts at once, as often as it is allowed.
Restarts::Advice Restarts::after_failure(std::int64_t step) {
  in_same_step_ = step == last_step_ ? in_same_step_ + 1 : 1;
  without_gain_ = step > furthest_step_ ? 0 : without_gain_ + 1;
  last_step_ = step;
  furthest_step_ = std::max(furthest_step_, step);
  if (most_ == 0) return {};
  if (in_same_step_ == kSameStep) {
    const std::string place = step == 0 ? words_.first : fmt::format("{} {}", words_.later, step);
    return {.why_not = fmt::format("not {}: it has failed {} {} times in a row", words_.again, place, kSameStep)};
  }
  if (done_ == most_)
    return {.why_not = fmt::format("not {}: all attempts of {} {} are used", words_.again, words_.flag, most_)};
  ++done_;
  const int doublings = std::min(without_gain_ - 1, 6);
  return {.again = true,
          .pause = without_gain_ == 0 ? std::chrono::seconds(0)
                                      : std::min(kFirstPause * (1 << std::max(doublings, 0)), kLongestPause)};
}

}  // namespace chimera

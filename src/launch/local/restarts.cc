#include "launch/local/restarts.h"

#include <fmt/format.h>
#include <algorithm>

namespace chimera {

// Two counters: failures in a row in the same step, which point to a fault of the job itself, and failures without a
// step further than ever before, which point to a machine that needs time. The pause doubles with the second: 0, 1, 2,
// 4, ... seconds, at most a minute. A job that gets further each time restarts at once, as often as it is allowed.
Restarts::Advice Restarts::after_failure(std::int64_t step) {
  failures_in_step_ = step == last_step_ ? failures_in_step_ + 1 : 1;
  failures_without_progress_ = step > furthest_step_ ? 0 : failures_without_progress_ + 1;
  last_step_ = step;
  furthest_step_ = std::max(furthest_step_, step);
  if (max_restarts_ == 0) return {};
  if (failures_in_step_ == kSameStep) {
    const std::string place = step == 0 ? "before its first step" : fmt::format("in step {}", step);
    return {.why_not = fmt::format("not {}: it has failed {} {} times in a row", words_.again, place, kSameStep)};
  }
  if (done_ == max_restarts_)
    return {.why_not = fmt::format("not {}: all attempts of {} {} are used", words_.again, words_.flag, max_restarts_)};
  ++done_;
  // Six doublings exceed kLongestPause already; more could overflow.
  const int doublings = std::min(failures_without_progress_ - 1, 6);
  return {.again = true,
          .pause = failures_without_progress_ == 0
                       ? std::chrono::seconds(0)
                       : std::min(kFirstPause * (1 << std::max(doublings, 0)), kLongestPause)};
}

}  // namespace chimera

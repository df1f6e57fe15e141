#include "train/recover/save_retries.h"

#include <algorithm>

namespace chimera {

void SaveRetries::note_failure(Clock::time_point now) {
  next_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

}  // namespace chimera

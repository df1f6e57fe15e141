#include "train/recover/next_start.h"

#include <fmt/format.h>

#include "checkpoint/find.h"
#include "core/console.h"
#include "core/cores.h"

namespace chimera {

NextStart next_start(const Job& job, std::int64_t failed_step) {
  const Newest newest = newest_checkpoint(job.options.checkpoint.folder, available_cores());
  for (const std::string& why : newest.refused) messages().write(fmt::format("chimera: refused {}\n", why));
  if (newest.checkpoint) {
    return {.arguments = {kFailedStepFlag, std::to_string(failed_step), "--resume", newest.checkpoint->path},
            .description =
                fmt::format("goes on from step {} ({})", newest.checkpoint->manifest.step, newest.checkpoint->path)};
  }
  return {.arguments = {kFailedStepFlag, std::to_string(failed_step)},
          .description = fmt::format("no checkpoint yet, begins again after step {}", job.first_step)};
}

}  // namespace chimera

#include "checkpoint_flags.h"

#include <fmt/format.h>

#include "core/error.h"
#include "help.h"
#include "options.h"
#include "train/recover/next_start.h"

namespace chimera::apps {

void CheckpointFlags::add_to(CLI::App& app, TrainOptions& options) {
  CheckpointOptions& checkpoint = options.checkpoint;
  begin_group(app, heading::kCheckpoints);
  add_path(app, "--checkpoint", checkpoint.folder,
           "save weights, optimizer state and place in the data to this folder now and then, and after the last step",
           PathKind::Folder);
  details = {
      app.add_option_function<std::string>(
             "--save-every",
             [&checkpoint](const std::string& text) { checkpoint.every = parse_save_interval("--save-every", text); },
             "steps between checkpoints, or a time such as 30s, 10min, 2h (default 10min)")
          ->type_name("N|TIME"),
      add_count(app, "--keep", checkpoint.keep.last, "newest checkpoints that stay (default 3)"),
      add_count(app, "--keep-every", checkpoint.keep.every,
                "checkpoints of steps that are multiples of this stay too; 0: none (default 0)"),
      add_count(app, "--max-restarts", options.max_restarts,
                "how often a job whose ranks die, fail or hang is started again from its newest good checkpoint "
                "(default 0)")};
  add_choice(
      app, "--recover", options.recover,
      "what becomes of a run that loses a rank: it starts again as --max-restarts says (restart); a new rank takes "
      "over "
      "weights and optimizer state from the ranks that hold the same stages, and no step is lost (twin); or it ends "
      "(none) (default restart)");
  recoveries = add_count(app, "--max-recoveries", options.max_recoveries,
                         "how often --recover twin replaces ranks in one start of the run (default 100)");
  add_choice(
      app, "--non-finite", options.non_finite,
      "what becomes of a step whose loss or gradient is not finite: it ends the run (abort); its update is not made "
      "(skip); or --max-restarts starts the run again from its newest checkpoint, and skips the step if it is not "
      "finite again (rollback) (default abort)");
  app.add_option_function<std::string>(
         "--spike", [&options](const std::string& text) { options.spike = parse_deviations("--spike", text); },
         "start the run again from its newest checkpoint, as --max-restarts allows, when a loss lies so many "
         "deviations "
         "above what those before let expect, and leave out the updates that led there (default: none does)")
      ->type_name("N[sigma]");
  spike_skip = add_count(app, "--spike-skip", options.spike_skip,
                         "mini-batches up to a spike whose updates are left out then (default 10)");
  add_choice(
      app, "--on-different-copies", options.different_copies,
      "what becomes of copies of a stage that are not equal, as a bit flipped: they end the run (abort); or they "
      "are compared after every step, and those that are unlike most take over weights and optimizer state from "
      "the others (repair) (default abort)");
  app.add_option(kFailedStepFlag, options.failed_step)->group("");  // for restarts alone
  add_path(
      app, "--resume", options.resume.from,
      "go on from a checkpoint, as if the run had never stopped: a folder of them, whose newest good one is taken; "
      "one of them; auto: that of --checkpoint, if it has any; or none",
      PathKind::Folder);
  other_data = app.add_flag("--resume-other-data", options.resume.other_data,
                            "go on even if the data, the mini-batch, the sequence or the seed is not that of the "
                            "checkpoint's run");
}

void CheckpointFlags::require_sense(const TrainOptions& options) const {
  for (const CLI::Option* option : details) {
    if (option->count() > 0 && options.checkpoint.folder.empty()) {
      throw ConfigError(fmt::format("{} is for --checkpoint", option->get_name()));
    }
  }
  if (options.non_finite == NonFinite::Rollback && options.max_restarts == 0) {
    throw ConfigError("--non-finite rollback starts the run again, as --max-restarts allows; give that too");
  }
  if (options.spike > 0 && options.max_restarts == 0) {
    throw ConfigError(
        "--spike starts the run again from its newest checkpoint, as --max-restarts allows; give --checkpoint and that "
        "too");
  }
  if (spike_skip->count() > 0 && options.spike == 0) throw ConfigError("--spike-skip is for --spike");
  if (other_data->count() > 0 && options.resume.from.empty()) {
    throw ConfigError("--resume-other-data is for --resume");
  }
  if (options.max_restarts > 0 && options.transport == TransportKind::Threads) {
    throw ConfigError("--max-restarts starts processes again; leave out --transport threads");
  }
  if (options.recover == Recover::None && options.max_restarts > 0) {
    throw ConfigError("--recover none leaves nothing to --max-restarts; leave out one of them");
  }
  if (recoveries->count() > 0 && options.recover != Recover::Twin) {
    throw ConfigError("--max-recoveries is for --recover twin");
  }
  constexpr std::int64_t kMany = 1'000'000'000;
  require_between("--max-recoveries", options.max_recoveries, 1, kMany);
  require_between("--spike-skip", options.spike_skip, 1, kMany);
  require_between("--keep", options.checkpoint.keep.last, 1, kMany);
  require_between("--max-restarts", options.max_restarts, 0, kMany);
  require_between("--keep-every", options.checkpoint.keep.every, 0, kMany);
}

}  // namespace chimera::apps

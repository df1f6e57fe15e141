// differing_rank OPTION: starts a job of three ranks; rank 1 gets another value of one option, as a foreign launcher
// might do.

#include "core/console.h"
#include "core/error.h"
#include "launch/local/launcher.h"
#include "launch/local/rank.h"
#include "support/training.h"
#include "train/loop/run.h"

namespace chimera {
namespace {

void change(TrainOptions& options, const std::string& option) {
  if (option == "seed") options.data.seed = 2;
  if (option == "clip and schedule") {
    options.updates.clip = 0.5;
    options.schedule.name = "gpipe";
  }
  if (option == "model") options.model.overrides.heads = 4;
  if (option == "groups") options.parallel.data_parallel = 2;
  if (option == "nothing that matters") options.device.threads = 2;
}

int run_main(int argc, char** argv);

int run(const std::string& option) {
  const auto rank = rank_environment();
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {3, 3});
  if (!rank) return launch({.ranks = 3, .arguments = {option}, .entry = run_main});
  options.updates.steps = 1;
  options.schedule.partition = {PartitionRule::Even};  // A balanced one also depends on other options
  if (rank->rank == 1) change(options, option);
  return run_rank(prepare_job(options), *rank);
}

int run_main(int, char** argv) {
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    report_failure({.op = "test", .message = error.what()});
    return 1;
  }
}

}  // namespace
}  // namespace chimera

int main(int argc, char** argv) {
  const int code = chimera::run_main(argc, argv);
  chimera::testing::remove_text_file();
  chimera::exit_now(code, chimera::kDrainAfterFailure);
}

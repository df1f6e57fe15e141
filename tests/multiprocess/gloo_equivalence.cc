// gloo_equivalence MODEL SCHEDULE D N 2f V [W LAYOUT]: runs one step on D W processes over Gloo. Each process compares
// its gradients with those of the unpipelined model, which it computes too. Exit code 0 means that all agree. MODEL is
// a preset; the suffix `-tied` ties its head.

#include <fmt/format.h>

#include <iostream>
#include <string_view>

#include "core/choices.h"
#include "core/console.h"
#include "core/error.h"
#include "launch/local/launcher.h"
#include "launch/local/rank.h"
#include "support/training.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera {
namespace {

constexpr double kTolerance = 1e-12;
constexpr std::string_view kTied = "-tied";

void compare(const TrainOptions& options, const RankEnvironment& rank) {
  at::set_num_threads(1);
  const Job job = prepare_job(options);
  testing::Trained mine;
  {
    const auto transport = connect_gloo({.rank = rank.rank,
                                         .world_size = rank.world_size,
                                         .rendezvous = rank.rendezvous,
                                         .groups = job.run.rank_groups()});
    Trainer trainer(job, RankId(rank.rank), *transport);
    mine.losses.push_back(trainer.train_step(0).loss);
    testing::collect(trainer, mine);
  }
  const auto reference = testing::train_unpipelined(options, 1);
  if (std::abs(mine.losses[0] - reference.losses[0]) > kTolerance * reference.losses[0])
    throw Error(fmt::format("loss {:.17g}, unpipelined {:.17g}", mine.losses[0], reference.losses[0]));
  if (mine.gradients.empty()) throw Error("this rank holds no parameters");
  for (const auto& [name, gradients] : mine.gradients) {
    const double error =
        testing::relative_error(gradients[0], reference.gradients.at(name)[0], reference.gradient_norms[0]);
    if (!(error <= kTolerance)) throw Error(fmt::format("gradient of {} is off by {:.3g}", name, error));
  }
}

int run_main(int argc, char** argv);

int run(const std::vector<std::string>& arguments, const std::optional<RankEnvironment>& rank) {
  const PipelineShape shape{std::stoll(arguments.at(2)), std::stoll(arguments.at(3)), std::stoll(arguments.at(4)),
                            std::stoll(arguments.at(5))};
  std::string model = arguments.at(0);
  const bool tied = model.ends_with(kTied);
  if (tied) model.resize(model.size() - kTied.size());
  TrainOptions options = testing::small_options(model, arguments.at(1), shape);
  options.model.overrides.tied = tied;
  if (arguments.size() > 6) {
    options.parallel.data_parallel = std::stoll(arguments.at(6));
    options.parallel.replica_layout = parse_named<ReplicaLayout>("replica layout", arguments.at(7));
  }
  if (!rank) {
    return launch({.ranks = static_cast<int>(shape.stages * options.parallel.data_parallel),
                   .arguments = arguments,
                   .entry = run_main});
  }
  try {
    compare(options, *rank);
    return 0;
  } catch (const std::exception& error) {
    report_failure({.op = "comparison",
                    .message = error.what(),
                    .own_cause = dynamic_cast<const PeerLostError*>(&error) == nullptr});
    return 1;
  }
}

int run_main(int argc, char** argv) {
  const auto rank = rank_environment();
  if (argc != 7 && argc != 9) {
    std::cerr << "usage: gloo_equivalence MODEL SCHEDULE D N 2f V [W LAYOUT]\n";
    return 2;
  }
  return run({argv + 1, argv + argc}, rank);
}

}  // namespace
}  // namespace chimera

int main(int argc, char** argv) {
  const int code = chimera::run_main(argc, argv);
  chimera::testing::remove_text_file();
  chimera::exit_now(code, chimera::kDrainAfterFailure);
}

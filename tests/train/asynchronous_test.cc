// Compares schedules that update weights between ops with a replay in one process. The replay keeps every version of
// each stage's weights and follows the published rule for the version that a micro-batch uses.

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>
#include <memory>

#include "core/error.h"
#include "engine/optimizer.h"
#include "model/make_stage.h"
#include "support/training.h"
#include "train/loop/loader.h"

namespace chimera {
namespace {

struct AsynchronousCase {
  std::string name;
  std::string schedule;
  std::int64_t stages;
  std::int64_t micro_batches;
  void (*set)(TrainOptions&) = [](TrainOptions&) {};
};

void PrintTo(const AsynchronousCase& c, std::ostream* out) { *out << c.name; }

constexpr std::int64_t kAsynchronousSteps = 5;

TrainOptions options_of(const AsynchronousCase& c) {
  TrainOptions options = testing::small_options("gpt2-tiny", c.schedule, {c.stages, c.micro_batches});
  options.model.overrides.layers = 4;
  options.updates.steps = kAsynchronousSteps;
  options.updates.learning_rate.peak = 0.01;
  options.updates.learning_rate.warmup = 2;
  options.updates.clip = 1.5;  // clips some updates but not all
  c.set(options);
  return options;
}

/// One stage with all versions of its weights.
class History {
 public:
  History(const Job& job, std::int64_t stage)
      : stage_(make_stage(job.model, job.partition[static_cast<std::size_t>(stage)], at::kDouble,
                          initial_values_of(static_cast<std::uint64_t>(job.options.data.seed)))),
        optimizer_(make_optimizer(job.options.updates.optimizer, {stage_.get()})) {
    remember();
  }

  Stage& stage() { return *stage_; }
  [[nodiscard]] std::int64_t newest() const { return static_cast<std::int64_t>(versions_.size()) - 1; }

  void put(std::int64_t version) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < stage_->parameters().size(); ++i) {
      at::Tensor value = stage_->parameters()[i].value;
      value.copy_(versions_.at(static_cast<std::size_t>(version))[i]);
    }
  }

  /// Returns the squared norm of the gradients before clipping.
  double update(const TrainOptions& options, std::int64_t step) {
    put(newest());
    const double norm = at::linalg_vector_norm(stage_->gradients()).item<double>();
    stage_->gradients().mul_(clip_factor(norm, options.updates.clip));
    optimizer_->step(options.updates.learning_rate.at(step, options.updates.steps), 1);
    stage_->zero_gradients();
    remember();
    return norm * norm;
  }

 private:
  void remember() {
    auto& values = versions_.emplace_back();
    for (const Parameter& parameter : stage_->parameters()) values.push_back(parameter.value.detach().clone());
  }

  std::unique_ptr<Stage> stage_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::vector<at::Tensor>> versions_;
};

/// Version that a micro-batch uses; micro-batches are counted from the start of the run.
std::int64_t version_of(const Job& job, std::int64_t stage, std::int64_t micro_batch) {
  const std::int64_t n = job.run.schedule.micro_batches;
  if (job.run.schedule.name == "pipedream-2bw") return std::max<std::int64_t>(0, micro_batch / n - 1);
  return std::max<std::int64_t>(0, micro_batch - (job.run.schedule.stages - 1 - stage));
}

class Replay {
 public:
  explicit Replay(const Job& job) : job_(job) {
    for (std::int64_t s = 0; s < job.run.schedule.stages; ++s) stages_.push_back(std::make_unique<History>(job, s));
  }

  testing::Trained run() {
    testing::Trained result;
    for (std::int64_t step = 0; step < job_.options.updates.steps; ++step) {
      loss_ = squares_ = 0;
      for (std::int64_t m = 0; m < job_.run.schedule.micro_batches; ++m) train(step, m);
      result.losses.push_back(loss_ / static_cast<double>(job_.run.updates()));
      result.gradient_norms.push_back(std::sqrt(squares_ / static_cast<double>(job_.run.updates())));
    }
    for (const auto& history : stages_) {
      for (const Parameter& p : history->stage().parameters()) result.parameters[p.name] = {p.value.detach().clone()};
    }
    return result;
  }

 private:
  void train(std::int64_t step, std::int64_t m) {
    const std::int64_t n = job_.run.schedule.micro_batches;
    const std::int64_t every = job_.options.data.validate_every;
    if (m == 0 && (step == 0 || (every > 0 && step % every == 0))) run_starts(step);
    const std::int64_t in_run = (step - first_step_) * n + m;
    for (std::size_t s = 0; s < stages_.size(); ++s)
      stages_[s]->put(first_versions_[s] + version_of(job_, static_cast<std::int64_t>(s), in_run));
    for (std::int64_t group = 0; group < job_.run.ranks.data_parallel; ++group) {
      const MicroBatch batch = micro_batch(step, job_.run.position(GroupId(group), MicroBatchId(m)));
      at::Tensor hidden;
      for (const auto& history : stages_) hidden = history->stage().forward(hidden, batch);
      hidden.backward();
      loss_ += hidden.item<double>();
    }
    if ((m + 1) % job_.run.schedule.updates->micro_batches != 0) return;
    for (const auto& history : stages_) squares_ += history->update(job_.options, step);
  }

  /// No micro-batch is in flight: the newest weights are the first version of the new run.
  void run_starts(std::int64_t step) {
    first_step_ = step;
    first_versions_.clear();
    for (const auto& history : stages_) first_versions_.push_back(history->newest());
  }

  [[nodiscard]] MicroBatch micro_batch(std::int64_t step, std::int64_t position) const {
    const std::int64_t first = position * job_.run.samples_per_op();
    MicroBatch batch = make_micro_batch(*job_.data.training, job_.model.family,
                                        {step, first, job_.run.samples_per_op(), job_.run.mini_batch()});
    batch.dropout = {.probability = job_.options.model.dropout,
                     .seed = static_cast<std::uint64_t>(job_.options.data.seed),
                     .step = step,
                     .first_sample = first};
    batch.token_loss_scale *= static_cast<double>(job_.run.updates());  // 1 / tokens of the update
    batch.sentence_loss_scale *= static_cast<double>(job_.run.updates());
    return batch;
  }

  const Job& job_;
  std::vector<std::unique_ptr<History>> stages_;
  std::vector<std::int64_t> first_versions_;  // [stage], of the run
  std::int64_t first_step_ = 0;
  double loss_ = 0;
  double squares_ = 0;
};

/// Trains with validation as Trainer::run does: the pipeline drains before each validation.
testing::Trained train(const TrainOptions& options) {
  const Job job = prepare_job(options);
  std::vector<testing::Trained> results(static_cast<std::size_t>(job.num_ranks()));
  run_rank_threads(static_cast<int>(job.num_ranks()), job.rank_groups(), [&](RankId rank, Transport& transport) {
    at::set_num_threads(1);
    testing::Trained& result = results[rank.index()];
    Trainer trainer(job, rank, transport);
    static_cast<void>(trainer.run([&](const StepMetrics& metrics) {
      result.losses.push_back(metrics.loss);
      result.gradient_norms.push_back(metrics.gradient_norm);
    }));
    testing::collect(trainer, result);
  });
  testing::Trained trained = std::move(results.front());
  for (std::size_t r = 1; r < results.size(); ++r) {
    for (auto& [name, tensors] : results[r].parameters) {
      for (auto& tensor : tensors) trained.parameters[name].push_back(tensor);
    }
  }
  return trained;
}

class AsynchronousTest : public ::testing::TestWithParam<AsynchronousCase> {};

TEST_P(AsynchronousTest, MakesTheUpdatesOfAReplayWithExplicitOldWeights) {
  const TrainOptions options = options_of(GetParam());
  const Job job = prepare_job(options);
  const testing::Trained replayed = Replay(job).run();
  const testing::Trained trained = train(options);
  ASSERT_EQ(trained.losses.size(), static_cast<std::size_t>(options.updates.steps));
  for (std::size_t step = 0; step < trained.losses.size(); ++step) {
    EXPECT_NEAR(trained.losses[step], replayed.losses[step], 1e-12 * replayed.losses[step]) << "step " << step + 1;
    EXPECT_NEAR(trained.gradient_norms[step], replayed.gradient_norms[step], 1e-12 * replayed.gradient_norms[step])
        << "step " << step + 1;
  }
  ASSERT_EQ(trained.parameters.size(), replayed.parameters.size());
  for (const auto& [name, parts] : trained.parameters) {
    EXPECT_EQ(parts.size(), static_cast<std::size_t>(options.parallel.data_parallel * options.parallel.tensor_parallel))
        << name;
    const at::Tensor& expected = replayed.parameters.at(name)[0];
    for (const at::Tensor& copy : testing::wholes_of(name, parts, prepare_job(options).ranks(), expected))
      EXPECT_TRUE(at::allclose(copy, expected, 1e-12, 1e-12)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, AsynchronousTest,
    ::testing::Values(
        AsynchronousCase{"PipeDream2", "pipedream", 2, 3}, AsynchronousCase{"PipeDream4", "pipedream", 4, 6},
        AsynchronousCase{"PipeDreamFewMicroBatches", "pipedream", 4, 2},
        AsynchronousCase{"PipeDreamOneMicroBatch", "pipedream", 4, 1},
        AsynchronousCase{"PipeDreamManySteps", "pipedream", 2, 2,
                         [](TrainOptions& o) {  // AdamW would amplify gradients that are zero except for rounding
                           o.updates.optimizer.kind = OptimizerKind::Sgd;
                           o.updates.steps = 30;
                         }},
        AsynchronousCase{"PipeDreamSgd", "pipedream", 4, 4,
                         [](TrainOptions& o) { o.updates.optimizer.kind = OptimizerKind::Sgd; }},
        AsynchronousCase{"PipeDreamLamb", "pipedream", 4, 4,
                         [](TrainOptions& o) { o.updates.optimizer.kind = OptimizerKind::Lamb; }},
        AsynchronousCase{"PipeDreamMuon", "pipedream", 4, 4,
                         [](TrainOptions& o) { o.updates.optimizer.kind = OptimizerKind::Muon; }},
        AsynchronousCase{"PipeDreamWithoutClipping", "pipedream", 4, 4, [](TrainOptions& o) { o.updates.clip = 0; }},
        AsynchronousCase{"PipeDreamDropoutRecomputed", "pipedream", 4, 4,
                         [](TrainOptions& o) {
                           o.model.dropout = 0.1;
                           o.memory.recompute = {StageRule::Full};
                         }},
        AsynchronousCase{"PipeDreamAttentionRecomputed", "pipedream", 4, 4,
                         [](TrainOptions& o) {
                           o.model.dropout = 0.1;
                           o.memory.recompute = {StageRule::Attention};
                         }},
        AsynchronousCase{"PipeDreamBlocksRecomputed", "pipedream", 2, 4,
                         [](TrainOptions& o) {
                           o.model.dropout = 0.1;
                           o.memory.recompute = parse_stages(kRecomputeFlag, "cheap:1+full:1");
                         }},
        AsynchronousCase{"PipeDreamGroups", "pipedream", 2, 4, [](TrainOptions& o) { o.parallel.data_parallel = 2; }},
        AsynchronousCase{"PipeDreamValidates", "pipedream", 4, 4, [](TrainOptions& o) { o.data.validate_every = 2; }},
        AsynchronousCase{"PipeDreamBert", "pipedream", 2, 3, [](TrainOptions& o) { o.model.name = "bert-tiny"; }},
        AsynchronousCase{"PipeDreamSplitLayers", "pipedream", 2, 3,
                         [](TrainOptions& o) { o.parallel.tensor_parallel = 2; }},
        AsynchronousCase{"PipeDreamSplitLayersLlama", "pipedream", 2, 3,
                         [](TrainOptions& o) {
                           o.model.name = "llama-tiny";
                           o.model.overrides.key_value_heads = 2;
                           o.parallel.tensor_parallel = 2;
                           o.updates.optimizer.kind = OptimizerKind::Lamb;
                         }},
        AsynchronousCase{"DoubleBufferedSplitLayers", "pipedream-2bw", 2, 2,
                         [](TrainOptions& o) {
                           o.parallel.tensor_parallel = 2;
                           o.parallel.data_parallel = 2;
                           o.data.validate_every = 3;
                           o.model.dropout = 0.1;
                         }},
        AsynchronousCase{"DoubleBufferedSplitLayersWithWholeTokens", "pipedream-2bw", 2, 4,
                         [](TrainOptions& o) {
                           o.parallel.tensor_parallel = 2;
                           o.parallel.sequence_parallel = SequenceParallel::None;
                         }},
        AsynchronousCase{"DoubleBuffered2", "pipedream-2bw", 2, 3},
        AsynchronousCase{"DoubleBuffered4", "pipedream-2bw", 4, 4},
        AsynchronousCase{"DoubleBufferedManyMicroBatches", "pipedream-2bw", 4, 7},
        AsynchronousCase{"DoubleBufferedMuon", "pipedream-2bw", 2, 2,
                         [](TrainOptions& o) {
                           o.updates.optimizer.kind = OptimizerKind::Muon;
                           o.parallel.data_parallel = 2;
                         }},
        AsynchronousCase{"DoubleBufferedDropout", "pipedream-2bw", 2, 4,
                         [](TrainOptions& o) { o.model.dropout = 0.1; }},
        AsynchronousCase{"DoubleBufferedGroups", "pipedream-2bw", 2, 2,
                         [](TrainOptions& o) { o.parallel.data_parallel = 2; }},
        AsynchronousCase{"DoubleBufferedValidates", "pipedream-2bw", 4, 4,
                         [](TrainOptions& o) { o.data.validate_every = 3; }}),
    [](const auto& tested) { return tested.param.name; });

TEST(AsynchronousTest, OneStageUpdatesOncePerMicroBatch) {
  TrainOptions options = testing::small_options("gpt2-tiny", "pipedream-2bw", {1, 4});
  options.model.overrides.layers = 2;
  options.updates.steps = 1;
  const auto trained = train(options);
  const auto reference = testing::train_unpipelined(options, 1);
  EXPECT_EQ(trained.losses, reference.losses);
  EXPECT_NEAR(trained.gradient_norms[0], reference.gradient_norms[0], 1e-12 * reference.gradient_norms[0]);
}

TEST(AsynchronousTest, RejectsMeaninglessOptions) {
  const auto message = [](const std::string& schedule, void (*set)(TrainOptions&)) {
    TrainOptions options = options_of({"", schedule, 2, 4});
    set(options);
    try {
      (void)prepare_job(options);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing refused");
  };
  EXPECT_EQ(message("pipedream", [](TrainOptions& o) { o.numbers.reduction = ReductionOrder::Canonical; }),
            "--reduction canonical: schedule pipedream is asynchronous, its updates depend on its order of ops");
  EXPECT_EQ(message("pipedream-2bw", [](TrainOptions& o) { o.schedule.sync = AllReducePlacement::Post; }),
            "--sync: schedule pipedream-2bw is asynchronous, it sums gradients at its updates; leave the flag out");
  EXPECT_EQ(message("pipedream", [](TrainOptions& o) { o.model.overrides.tied = true; }),
            "--tied true: schedule pipedream is asynchronous, and would update the two copies of the tied matrix "
            "separately; use --tied false");
  EXPECT_EQ(message("pipedream", [](TrainOptions& o) { o.updates.steps = 1'000'000'000; }),
            "--steps 1000000000: at most 536870911 steps of 4 micro-batches run by an asynchronous schedule");
  EXPECT_EQ(
      message("pipedream-2bw", [](TrainOptions& o) { o.schedule.shape.micro_batches = 1; }),
      "schedule pipedream-2bw: --micro-batches must be at least --stages = 2, not 1 (an update takes D or more); 2 "
      "stages and 1 micro-batch suit gpipe, 1f1b, interleaved-1f1b, combined-1f1b, looped-bfs");
}

TEST(AsynchronousTest, AMillionStepsNeedNoMoreRoomThanAFew) {
  TrainOptions options = options_of({"", "pipedream", 4, 8});
  options.updates.steps = 1'000'000;
  EXPECT_LE(prepare_job(options).programs.runs.at(1'000'000).program.steps, 8);
}

}  // namespace
}  // namespace chimera

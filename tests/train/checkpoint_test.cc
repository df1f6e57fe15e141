
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "checkpoint/shard.h"
#include "core/error.h"
#include "support/scratch.h"
#include "support/synced.h"
#include "support/training.h"
#include "train/loop/loader.h"
#include "train/recover/checkpointer.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Scratch;
using ::testing::ThrowsMessage;

constexpr std::int64_t kCheckpointSteps = 4;
constexpr std::int64_t kCheckpointMicroBatches = 8;  // of a step, over all groups

/// Dropout, clipping and a changing learning rate: everything that depends on the position in the run.
TrainOptions small_run(const std::string& schedule, const PipelineShape& shape) {
  TrainOptions options = testing::small_options("gpt2-tiny", schedule, shape);
  options.model.overrides.tied = true;
  options.updates.steps = kCheckpointSteps;
  options.numbers.dtype = DataType::Float32;
  options.numbers.reduction = ReductionOrder::Canonical;
  options.updates.clip = 0.5;
  options.model.dropout = 0.1;
  options.updates.learning_rate.peak = 0.01;
  options.updates.learning_rate.warmup = 3;
  return options;
}

/// The steps that a run reports.
struct Told {
  std::vector<std::int64_t> steps;
  std::vector<double> losses;
  std::vector<std::string> hashes;
  bool is_saved = true;
};

/// Runs the job to its end with ranks as threads.
Told run(const TrainOptions& options) {
  const Job job = prepare_job(options);
  Told told;
  run_rank_threads(static_cast<int>(job.run.num_ranks()), job.run.rank_groups(),
                   [&](RankId rank, Transport& transport) {
                     at::set_num_threads(1);
                     Trainer trainer(job, rank, transport);
                     trainer.run([&](const StepMetrics& metrics) {
                       if (rank != RankId(0)) return;
                       told.steps.push_back(metrics.step);
                       told.losses.push_back(metrics.loss);
                       told.hashes.push_back(metrics.parameters_hash.value_or(""));
                     });
                     const bool is_saved = trainer.finish_checkpoints();
                     if (rank == RankId(0)) told.is_saved = is_saved;
                   });
  return told;
}

/// The uninterrupted run.
const Told& undisturbed() {
  static const Told told = run(small_run("none", {1, kCheckpointMicroBatches}));
  return told;
}

TrainOptions saving(TrainOptions options, const std::string& folder, std::int64_t every = 2) {
  options.checkpoint = {.folder = folder, .every = {.steps = every, .seconds = 0}, .keep = {}};
  return options;
}

TrainOptions resuming(TrainOptions options, const std::string& from) {
  options.resume.from = from;
  return options;
}

struct Layout {
  std::string name;
  TrainOptions options;
};

std::vector<Layout> layouts() {
  const auto with = [](TrainOptions options, const auto& change) {
    change(options);
    return options;
  };
  const PipelineShape two{2, kCheckpointMicroBatches};
  const PipelineShape four{4, kCheckpointMicroBatches};
  const auto groups = [](TrainOptions& o) { o.parallel.data_parallel = 2; };
  const auto shard = [](TrainOptions& o) { o.memory.shard_optimizer = true; };
  return {{"none", small_run("none", {1, kCheckpointMicroBatches})},
          {"1f1b, 2 stages", small_run("1f1b", two)},
          {"gpipe, 4 stages", small_run("gpipe", four)},
          {"chimera, 2 stages", small_run("chimera", two)},
          {"chimera, 4 stages", small_run("chimera", four)},
          {"chimera, 4 pipelines", small_run("chimera", {4, kCheckpointMicroBatches, 4})},
          {"chimera, sharded", with(small_run("chimera", four), shard)},
          {"zb-v", small_run("zb-v", two)},
          {"1f1b, 2 groups", with(small_run("1f1b", {2, kCheckpointMicroBatches / 2}), groups)},
          {"chimera, 2 groups, sharded", with(small_run("chimera", {2, kCheckpointMicroBatches / 2}),
                                              [&](TrainOptions& o) {
                                                groups(o);
                                                shard(o);
                                              })},
          {"1f1b, own cut",
           with(small_run("1f1b", two), [](TrainOptions& o) { o.schedule.partition = parse_partition("3,5"); })},
          {"chimera, recomputed",
           with(small_run("chimera", two), [](TrainOptions& o) { o.memory.recompute.rule = StageRule::Full; })}};
}

/// Bytes of all tensors, by name.
std::map<std::string, std::vector<std::byte>> elements_of(const Checkpoint& checkpoint) {
  const CheckpointTensors tensors(checkpoint.path, checkpoint.manifest);
  std::map<std::string, std::vector<std::byte>> elements;
  for (const std::string& name : tensors.names()) {
    const auto found = tensors.find(name);
    auto& bytes = elements[name];
    bytes.resize(found->tensor.bytes);
    found->file->read(found->tensor, 0, bytes);
  }
  return elements;
}

void expect_rest_of_run(const Told& rest, std::int64_t first, const std::string& what) {
  const Told& whole = undisturbed();
  const auto rest_of = [&](const auto& all) { return std::vector(all.begin() + first, all.end()); };
  EXPECT_EQ(rest.steps, rest_of(whole.steps)) << what;
  EXPECT_EQ(rest.losses, rest_of(whole.losses)) << what;
  EXPECT_EQ(rest.hashes, rest_of(whole.hashes)) << what;
}

TEST(CheckpointTest, EveryLayoutResumesFromEveryOther) {
  const Scratch scratch;
  const std::vector<Layout> all = layouts();
  const auto folder = [&](std::size_t i) { return scratch.path("run-" + std::to_string(i)); };
  std::map<std::string, std::vector<std::byte>> expected;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Told told = run(saving(all[i].options, folder(i)));
    EXPECT_EQ(told.hashes, undisturbed().hashes) << all[i].name << ": saving changes a run";
    EXPECT_THAT(list_steps(folder(i)), ElementsAre(2, kCheckpointSteps));
    const auto elements = elements_of(open_checkpoint(checkpoint_path(folder(i), 2), 1));
    if (i == 0) expected = elements;
    EXPECT_EQ(elements == expected, true) << all[i].name << ": a checkpoint depends on its layout";
  }
  // All checkpoints have the same tensors, so it is enough that each layout reads the checkpoint of one other layout.
  const bool all_pairs = std::getenv("CHIMERA_LONG_TESTS") != nullptr;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t from = 0; from < all.size(); ++from) {
      if (!all_pairs && from != (i + 5) % all.size()) continue;
      const Told told = run(resuming(all[i].options, checkpoint_path(folder(from), 2)));
      expect_rest_of_run(told, 2, all[i].name + " from " + all[from].name);
    }
  }
}

TEST(CheckpointTest, HasEachTensorOnceUnderTheNamesOfTheExport) {
  const Scratch scratch;
  static_cast<void>(run(saving(small_run("chimera", {4, kCheckpointMicroBatches}), scratch.path("run"))));
  const Checkpoint checkpoint = open_checkpoint(checkpoint_path(scratch.path("run"), kCheckpointSteps), 2);
  const ModelFolder folder(checkpoint.path);  // checks that every weight is present with the right shape, and no others
  const CheckpointTensors tensors(checkpoint.path, checkpoint.manifest);
  EXPECT_EQ(tensors.names().size(), 3 * all_parameters(folder.model()).size()) << "a weight and two moments each";
  EXPECT_TRUE(tensors.find("transformer.wte.weight.second_moment").has_value());
  std::uint64_t largest = 0;
  std::uint64_t sum = 0;
  int writers = 0;
  for (const FileEntry& file : checkpoint.manifest.files) {
    if (!file.name.starts_with("optimizer-")) continue;
    ++writers;
    largest = std::max(largest, file.bytes);
    sum += file.bytes;
  }
  EXPECT_EQ(writers, 4) << "the copies of a stage share the work";
  EXPECT_LT(largest, sum / 2);
}

TEST(CheckpointTest, LambAndSgdResumeToo) {
  for (const OptimizerKind kind : {OptimizerKind::Lamb, OptimizerKind::Sgd}) {
    const Scratch scratch;
    TrainOptions options = small_run("chimera", {2, kCheckpointMicroBatches});
    options.updates.optimizer.kind = kind;
    const Told whole = run(saving(options, scratch.path("run")));
    options.memory.shard_optimizer = true;
    const Told rest = run(resuming(options, checkpoint_path(scratch.path("run"), 2)));
    EXPECT_THAT(rest.hashes, ElementsAre(whole.hashes[2], whole.hashes[3]));
  }
}

TEST(CheckpointTest, ResumesWithOtherSlices) {
  const auto sliced = [](std::int64_t slices) {
    PipelineShape shape{2, kCheckpointMicroBatches};
    shape.slices = slices;
    TrainOptions options = small_run("1f1b", shape);
    options.numbers.dtype = DataType::Float64;
    options.numbers.reduction = ReductionOrder::Natural;
    return options;
  };
  const Scratch scratch;
  const Told whole = run(sliced(1));
  static_cast<void>(run(saving(sliced(4), scratch.path("run"))));
  for (const std::int64_t slices : {1, 2}) {
    const Told rest = run(resuming(sliced(slices), checkpoint_path(scratch.path("run"), 2)));
    EXPECT_THAT(rest.losses, ElementsAre(::testing::DoubleNear(whole.losses[2], 1e-11 * whole.losses[2]),
                                         ::testing::DoubleNear(whole.losses[3], 1e-11 * whole.losses[3])));
  }
}

TEST(CheckpointTest, AsynchronousScheduleResumesFromItsFlush) {
  const Scratch scratch;
  TrainOptions options = small_run("pipedream", {2, 4});
  options.numbers.reduction = ReductionOrder::Natural;
  options.model.overrides.tied = false;
  const Told whole = run(saving(options, scratch.path("run")));
  const Told rest = run(resuming(saving(options, scratch.path("other")), checkpoint_path(scratch.path("run"), 2)));
  EXPECT_THAT(rest.losses, ElementsAre(whole.losses[2], whole.losses[3]));
  options.checkpoint.every = {.steps = 0, .seconds = 60};
  options.checkpoint.folder = scratch.path("third");
  EXPECT_THAT([&] { (void)prepare_job(options); }, ThrowsMessage<ConfigError>(HasSubstr("give --save-every in steps")));
  options = resuming(saving(options, scratch.path("third"), 3), checkpoint_path(scratch.path("run"), 2));
  EXPECT_THAT([&] { (void)prepare_job(options); }, ThrowsMessage<ConfigError>(HasSubstr("cannot start at step 2")));
}

TEST(CheckpointTest, CompletedRunDoesNothing) {
  const Scratch scratch;
  const TrainOptions options = saving(small_run("1f1b", {2, kCheckpointMicroBatches}), scratch.path("run"));
  static_cast<void>(run(options));
  const Told told = run(resuming(options, "auto"));
  EXPECT_THAT(told.steps, ElementsAre());
  EXPECT_TRUE(told.is_saved);
}

TEST(CheckpointTest, AutoTakesTheNewestValidCheckpointAndReplacesTheOthers) {
  const Scratch scratch;
  const std::string folder = scratch.path("run");
  const TrainOptions options = saving(small_run("chimera", {2, kCheckpointMicroBatches}), folder);
  expect_rest_of_run(run(resuming(options, "auto")), 0, "from the start where there is none");
  const std::string newest = checkpoint_path(folder, kCheckpointSteps);
  std::filesystem::resize_file(newest + "/model-00001-of-00002.safetensors", 50);
  expect_rest_of_run(run(resuming(options, "auto")), 2, "from the newest good one");
  EXPECT_EQ(open_checkpoint(newest, 1).manifest.step, kCheckpointSteps);
}

TEST(CheckpointTest, TheNameOfItsFolderIsOnTheDisk) {
  const Scratch scratch;
  const std::string root = std::filesystem::canonical(scratch.path("."));
  static_cast<void>(testing::take_synced_paths());
  EXPECT_TRUE(run(saving(small_run("none", {1, 8}), root + "/new/run")).is_saved);
  EXPECT_THAT(testing::take_synced_paths(), ::testing::IsSupersetOf({root, root + "/new"}));
}

TEST(CheckpointTest, FilesThatAppearInTheExportedFolderAreOnlyRefusedAtTheStart) {
  const Scratch scratch;
  TrainOptions options = small_run("none", {1, 8});
  options.exported.folder = scratch.path("out");
  std::filesystem::create_directory(options.exported.folder);
  std::ofstream(scratch.path("out/file")) << "a user's";
  EXPECT_THAT([&] { (void)prepare_job(options); }, ThrowsMessage<ConfigError>(HasSubstr("out: exists already")));
  options.output.reports = false;  // A rank, perhaps one that replaces a lost one
  EXPECT_NO_THROW((void)prepare_job(options));
}

TEST(CheckpointTest, FailedSaveDoesNotEndTheRun) {
  const Scratch scratch;
  const std::string folder = scratch.path("run");
  std::filesystem::create_directory(folder);
  std::ofstream(unfinished_path(folder, 2)) << "a file where a folder has to be";
  const Told told = run(saving(small_run("chimera", {2, kCheckpointMicroBatches}), folder));
  EXPECT_EQ(told.hashes, undisturbed().hashes);
  EXPECT_TRUE(told.is_saved);
  EXPECT_THAT(list_steps(folder), ElementsAre(kCheckpointSteps));
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  std::ofstream(unfinished_path(folder, kCheckpointSteps)) << "now the last one";
  EXPECT_FALSE(run(saving(small_run("chimera", {2, kCheckpointMicroBatches}), folder)).is_saved);
  EXPECT_THAT(list_steps(folder), ElementsAre(2));
}

TEST(CheckpointTest, IsSavedByTime) {
  const Scratch scratch;
  TrainOptions options = saving(small_run("1f1b", {2, kCheckpointMicroBatches}), scratch.path("run"));
  options.checkpoint.every = {.steps = 0, .seconds = 1e-9};
  options.checkpoint.keep.last = 100;
  EXPECT_TRUE(run(options).is_saved);
  EXPECT_THAT(list_steps(scratch.path("run")),
              ::testing::AllOf(::testing::Contains(1), ::testing::Contains(kCheckpointSteps)));
}

TEST(CheckpointTest, IncompatibleRunsAreRejectedInOneLine) {
  const Scratch scratch;
  const std::string folder = scratch.path("run");
  const TrainOptions options = small_run("1f1b", {2, kCheckpointMicroBatches});
  static_cast<void>(run(saving(options, folder)));
  const auto expect_refused = [&](const auto& change, const std::string& why) {
    TrainOptions changed = resuming(options, checkpoint_path(folder, 2));
    change(changed);
    EXPECT_THAT([&] { (void)prepare_job(changed); }, ThrowsMessage<ConfigError>(HasSubstr(why))) << why;
  };
  expect_refused([](TrainOptions& o) { o.model.overrides.layers = 4; },
                 "model.layers: 8 in the saved run, 4 in this run");
  expect_refused([](TrainOptions& o) { o.updates.optimizer.kind = OptimizerKind::Lamb; }, "optimizer.kind");
  expect_refused([](TrainOptions& o) { o.data.seed = 2; }, "data.seed: 1 in the saved run, 2 in this run");
  expect_refused([](TrainOptions& o) { o.data.sequence = 8; }, "data.sequence: 16 in the saved run, 8 in this run");
  expect_refused([](TrainOptions& o) { o.data.micro_batch_size = 1; },
                 "data.mini_batch: 16 in the saved run, 8 in this run");
  expect_refused([](TrainOptions& o) { o.updates.steps = 1, o.updates.learning_rate.warmup = 1; },
                 "--steps 1 are fewer");
  expect_refused([&](TrainOptions& o) { o.data.training = scratch.write("other.txt", std::string(9000, 'x') + "y"); },
                 "data.content");
  expect_refused([](TrainOptions& o) { o.resume.from = "auto"; }, "give --checkpoint");
  expect_refused([&](TrainOptions& o) { o.resume.from = scratch.path("nothing"); }, "has no checkpoints");
  expect_refused([&](TrainOptions& o) { o.checkpoint.folder = folder; }, "has step-00000004 after step 2; give");
  expect_refused(
      [&](TrainOptions& o) {
        o.resume.from.clear();
        o.checkpoint.folder = folder;
      },
      "has step-00000002 of another run; give --resume auto");
  TrainOptions changed = resuming(options, checkpoint_path(folder, 2));
  changed.data.seed = 2;
  changed.resume.other_data = true;
  EXPECT_EQ(prepare_job(changed).first_step, 2);
}

TEST(CheckpointTest, AnotherMiniBatchContinuesAfterTheLastSample) {
  const Scratch scratch;
  TrainOptions options = saving(small_run("none", {1, 8}), scratch.path("run"));
  options.updates.steps = options.updates.learning_rate.warmup = 2;
  static_cast<void>(run(options));
  TrainOptions other = resuming(saving(small_run("none", {1, 3}), scratch.path("run")), "auto");
  other.resume.other_data = true;
  const Job job = prepare_job(other);
  EXPECT_EQ(job.options.resume.sample_shift, 2 * 16 - 2 * 6);
  Loader loader(job, {GroupId(0), WorkerId(0)}, at::kCPU);
  const MicroBatch next = loader.training(2, StageId(0), MicroBatchId(0));
  const BatchPosition after{.step = 0, .first = 32, .size = 2, .mini_batch = 34};
  EXPECT_TRUE(at::equal(next.tokens, make_micro_batch(*job.data.training, job.model.family, after).tokens));
  static_cast<void>(run(other));
  const auto progress = read_manifest(checkpoint_path(scratch.path("run"), 4)).run.at("progress");
  EXPECT_EQ(progress.at("samples"), 32 + 2 * 6);
  EXPECT_EQ(progress.at("tokens"), (32 + 2 * 6) * 16);
}

TEST(CheckpointTest, AResumedRunKeepsTheLearningRate) {
  const Scratch scratch;
  static_cast<void>(run(saving(small_run("none", {1, 8}), scratch.path("run"))));
  TrainOptions longer = resuming(saving(small_run("none", {1, 8}), scratch.path("run")), "auto");
  longer.updates.steps = 1000;
  longer.updates.usual_peak = longer.updates.usual_warmup = true;
  choose_usual_rates(longer);
  EXPECT_EQ(longer.updates.learning_rate.warmup, 50);
  const Job job = prepare_job(longer);
  EXPECT_EQ(job.options.updates.learning_rate.warmup, 3);
  EXPECT_EQ(job.options.updates.learning_rate.peak, 0.01);
}

TEST(CheckpointTest, MuonKeepsItsMatrices) {
  const Scratch scratch;
  TrainOptions muon = small_run("none", {1, 8});
  muon.updates.optimizer.kind = OptimizerKind::Muon;
  static_cast<void>(run(saving(muon, scratch.path("run"))));
  muon.updates.optimizer.muon.exclude = {"mlp"};
  EXPECT_THAT([&] { static_cast<void>(prepare_job(resuming(muon, scratch.path("run")))); },
              ThrowsMessage<ConfigError>(HasSubstr("its run had no --muon-exclude; give the same")));
  muon.updates.optimizer.muon.exclude = {"nosuch"};
  EXPECT_THAT([&] { static_cast<void>(prepare_job(muon)); },
              ThrowsMessage<ConfigError>(HasSubstr("--muon-exclude nosuch: is in no name of a matrix")));
}

TEST(CheckpointTest, AModelOfFewPositionsIsSaved) {
  const Scratch scratch;
  std::ofstream(scratch.path("short.toml"))
      << "family = \"gpt2\"\nlayers = 2\nhidden = 16\nheads = 2\nfeed_forward = 64\n"
         "vocabulary = 256\npositions = 16\ntied = true\n";
  TrainOptions options = saving(small_run("none", {1, 4}), scratch.path("run"));
  options.model.name = scratch.path("short.toml");
  options.model.overrides = {};
  EXPECT_TRUE(run(options).is_saved);
}

TEST(CheckpointTest, TwoRunsDoNotSaveToOneFolder) {
  const Scratch scratch;
  const TrainOptions options = saving(small_run("none", {1, kCheckpointMicroBatches}), scratch.path("run"));
  const Job job = prepare_job(options);
  run_rank_threads(1, job.run.rank_groups(), [&](RankId rank, Transport& transport) {
    const Trainer first(job, rank, transport);
    EXPECT_THAT([&] { Trainer(job, rank, transport); },
                ThrowsMessage<ConfigError>(HasSubstr("another run saves in this folder")));
  });
}

TEST(SaveIntervalTest, IsStepsOrATime) {
  EXPECT_EQ(parse_save_interval("--x", "100"), (SaveInterval{.steps = 100, .seconds = 0}));
  EXPECT_EQ(parse_save_interval("--x", "30s"), (SaveInterval{.steps = 0, .seconds = 30}));
  EXPECT_EQ(parse_save_interval("--x", "10min"), (SaveInterval{.steps = 0, .seconds = 600}));
  EXPECT_EQ(parse_save_interval("--x", "2h"), (SaveInterval{.steps = 0, .seconds = 7200}));
  for (const char* wrong : {"", "0", "-1", "min", "10 min", "1.5h", "10days", "99999999999999999999"})
    EXPECT_THROW((void)parse_save_interval("--x", wrong), ConfigError) << wrong;
}

}  // namespace
}  // namespace chimera

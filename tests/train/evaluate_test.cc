
#include "train/loop/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/error.h"
#include "core/json.h"
#include "support/scratch.h"
#include "support/training.h"
#include "train/export/export_model.h"

namespace chimera {
namespace {

using testing::Scratch;

constexpr std::int64_t kSequence = 12;

class EvaluateTest : public ::testing::Test {
 protected:
  /// The folder of a small model that has trained for one step.
  std::string folder(const std::string& model, bool tied = false) {
    TrainOptions options = testing::small_options(model, "none", {1, 1});
    options.model.overrides.layers = 2;
    options.model.overrides.tied = tied;
    options.updates.learning_rate.peak = 0.1;
    options.exported.folder = scratch_.path(model + (tied ? "-tied" : ""));
    const Job job = prepare_job(options);
    run_rank_threads(1, job.run.rank_groups(), [&](RankId rank, Transport& transport) {
      Trainer trainer(job, rank, transport);
      trainer.train_step(0);
      export_model(job, trainer.model().whole_parameters(), rank, transport);
    });
    return options.exported.folder;
  }

  [[nodiscard]] EvaluationOptions options(const std::string& from, const std::string& data) const {
    return {.from = from, .data = data, .sequence = kSequence, .dtype = DataType::Float64, .threads = 1};
  }

  Scratch scratch_;
  std::string text_ = testing::read_file(testing::text_file()).substr(0, 1003);
  std::string data_ = scratch_.write("text.txt", text_);
};

Evaluation evaluation(const EvaluationOptions& options) {
  return evaluate(options, [](const EvaluationProgress&) {});
}

double loss(const EvaluationOptions& options) { return evaluation(options).loss; }

/// Writes each window to its own file.
TEST_F(EvaluateTest, TheLossIsTheMeanOverWindowsThatBeginEveryLTokens) {
  for (const std::string model : {"gpt2-tiny", "llama-tiny"}) {
    for (const bool tied : {false, true}) {
      const std::string from = folder(model, tied);
      const Evaluation whole = evaluation(options(from, data_));
      ASSERT_EQ(whole.windows, (static_cast<std::int64_t>(text_.size()) - 1) / kSequence);
      EXPECT_EQ(whole.tokens, whole.windows * kSequence);
      double sum = 0;
      for (std::int64_t i = 0; i < whole.windows; ++i) {
        const std::string window = text_.substr(static_cast<std::size_t>(i * kSequence), kSequence + 1);
        sum += loss(options(from, scratch_.write("window.txt", window)));
      }
      EXPECT_NEAR(whole.loss, sum / static_cast<double>(whole.windows), 1e-12) << model;
      EXPECT_LT(whole.loss, std::log(256.0)) << model << " has been trained";
    }
  }
}

TEST_F(EvaluateTest, MicroBatchesChangeNoMoreThanRounding) {
  for (const std::string model : {"gpt2-tiny", "bert-tiny"}) {
    EvaluationOptions one = options(folder(model), data_);
    one.micro_batch_size = 1;
    for (const DataType dtype : {DataType::Float64, DataType::Float32}) {
      one.dtype = dtype;
      const double expected = loss(one);
      for (const std::int64_t size : {3, 64, 1000}) {
        EvaluationOptions larger = one;
        larger.micro_batch_size = size;
        EXPECT_NEAR(loss(larger), expected, (dtype == DataType::Float64 ? 1e-13 : 1e-6) * expected) << size;
      }
    }
  }
}

/// A BERT sample depends on its position; a text of one window has no pairs.
TEST_F(EvaluateTest, BertsMasksAreFixedByTheSeed) {
  EvaluationOptions first = options(folder("bert-tiny"), data_);
  EvaluationOptions second = first;
  second.seed = 2;
  const Evaluation one = evaluation(first);
  EXPECT_EQ(one.loss, loss(first));
  EXPECT_NE(one.loss, loss(second));
  EXPECT_EQ(one.windows, 1003 / (kSequence - 3));
  EXPECT_EQ(one.tokens, one.windows) << "15 % of 9 tokens, rounded";
}

TEST_F(EvaluateTest, ReadsTheShardsThatAFolderKeepsForValidation) {
  const std::string from = folder("gpt2-tiny");
  std::filesystem::create_directory(scratch_.path("shards"));
  static_cast<void>(scratch_.write("shards/a_train.txt", std::string(100, 'x')));
  static_cast<void>(scratch_.write("shards/b_val_0.txt", text_.substr(0, 500)));
  static_cast<void>(scratch_.write("shards/b_val_1.txt", text_.substr(500)));
  EXPECT_EQ(loss(options(from, scratch_.path("shards"))), loss(options(from, data_)));
}

/// An export has the tokenizer with which the run began, also if its file was replaced. Without it, text is refused.
TEST_F(EvaluateTest, TextOfAFolderNeedsTheTokenizerOfItsRun) {
  const std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nof\n";
  TrainOptions training = testing::small_options("gpt2-tiny", "none", {1, 1});
  training.data.tokenizer = scratch_.write("words.txt", words);
  training.model.overrides.vocabulary = 300;
  training.exported.folder = scratch_.path("exported");
  const Job job = prepare_job(training);
  static_cast<void>(scratch_.write("words.txt", "of another run"));
  run_rank_threads(1, job.run.rank_groups(), [&](RankId rank, Transport& transport) {
    const Trainer trainer(job, rank, transport);
    export_model(job, trainer.model().whole_parameters(), rank, transport);
  });
  EXPECT_EQ(testing::read_file(training.exported.folder + "/vocab.txt"), words);
  EXPECT_EQ(read_json(testing::read_file(training.exported.folder + "/tokenizer_config.json"))["tokenizer_class"],
            "BertTokenizer");
  std::filesystem::remove(training.exported.folder + "/vocab.txt");
  EXPECT_THAT([&] { (void)loss(options(training.exported.folder, data_)); },
              ::testing::ThrowsMessage<ConfigError>(
                  ::testing::HasSubstr("has no tokenizer, and a vocabulary of 300 is not a byte vocabulary")));
}

TEST_F(EvaluateTest, ProgressEndsWithTheResult) {
  EvaluationOptions all = options(folder("gpt2-tiny"), data_);
  all.micro_batch_size = 30;
  std::vector<EvaluationProgress> steps;
  const Evaluation result = evaluate(all, [&](const EvaluationProgress& now) { steps.push_back(now); });
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[0].windows_done, 30);
  EXPECT_EQ(steps[2].windows_done, result.windows);
  EXPECT_EQ(steps[2].tokens_done, result.windows * kSequence);
  EXPECT_EQ(steps[2].loss, result.loss);
  EXPECT_LE(steps[0].seconds, steps[2].seconds);
}

TEST_F(EvaluateTest, ALossThatIsNotFiniteIsNoResult) {
  const std::string from = folder("gpt2-tiny");
  const std::string weights = from + "/model.safetensors";
  std::string bytes = testing::read_file(weights);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::memcpy(bytes.data() + bytes.size() - sizeof nan, &nan, sizeof nan);
  std::ofstream(weights) << bytes;
  EXPECT_THAT([&] { static_cast<void>(loss(options(from, data_))); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("the loss of windows 0 to 7 is nan")));
}

}  // namespace
}  // namespace chimera

// Data of a run: token files, documents and mixtures, independent of how they are stored.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <filesystem>

#include "core/error.h"
#include "support/scratch.h"
#include "support/training.h"

namespace chimera {
namespace {

using testing::Scratch;

/// A folder of 60 short texts, each a document; most samples of 16 tokens span several documents.
std::string write_documents(const Scratch& scratch) {
  std::filesystem::create_directory(scratch.path("documents"));
  for (int i = 0; i < 60; ++i) {
    std::string text;
    for (int k = 0; k < 3 + i % 20; ++k) text += static_cast<char>('a' + (i * k * k + i) % 26);
    static_cast<void>(scratch.write("documents/" + std::to_string(i) + ".txt", text));
  }
  return scratch.path("documents");
}

class DataTest : public ::testing::Test {
 protected:
  TrainOptions options(const std::string& schedule, const PipelineShape& shape, Documents documents) {
    TrainOptions all = testing::small_options("gpt2-tiny", schedule, shape);
    all.data.training = data_;
    all.data.documents = documents;
    return all;
  }
  Scratch scratch_;
  std::string data_ = write_documents(scratch_);
};

/// Middle stages also need the document boundaries.
TEST_F(DataTest, InsideDocumentsLossAndGradientsAreThoseOfTheUnpipelinedModel) {
  const auto reference = testing::train_unpipelined(options("none", {4, 4}, Documents::Split), 2);
  for (const char* schedule : {"chimera", "1f1b", "zb-h1"}) {
    const auto pipelined = testing::train(options(schedule, {4, 4, 2}, Documents::Split), 2);
    for (std::size_t step = 0; step < 2; ++step)
      EXPECT_NEAR(pipelined.losses[step], reference.losses[step], 1e-12 * reference.losses[step]) << schedule;
    for (const auto& [name, expected] : reference.gradients) {
      for (const at::Tensor& gradient : pipelined.gradients.at(name))
        EXPECT_LT((gradient - expected.front()).norm().item<double>(), 1e-10) << schedule << " " << name;
    }
  }
}

TEST_F(DataTest, DealtDocumentsKeepTheBitsOfCanonicalSums) {
  const auto canonical = [&](const std::string& schedule, const PipelineShape& shape) {
    TrainOptions all = options(schedule, shape, Documents::Split);
    all.numbers.reduction = ReductionOrder::Canonical;
    all.model.dropout = 0.1;
    return all;
  };
  const auto reference = testing::train(canonical("none", {1, 8}), 2);
  for (const char* schedule : {"chimera", "zb-h1"}) {
    const auto pipelined = testing::train(canonical(schedule, {4, 8, 2}), 2);
    EXPECT_EQ(pipelined.losses, reference.losses);
    EXPECT_EQ(pipelined.parameters_hashes, reference.parameters_hashes);
  }
  TrainOptions kept = canonical("none", {1, 8});
  kept.schedule.adapt = Adapt::None;
  EXPECT_NE(testing::train(kept, 2).parameters_hashes, reference.parameters_hashes) << "nothing was dealt";
}

/// Dropout masks follow the samples to their places.
TEST_F(DataTest, PermutedDocumentsTrainAsThoseInOrder) {
  const auto dropped = [&](const std::string& schedule) {
    TrainOptions all = options(schedule, {4, 8, 2}, Documents::Split);
    all.model.dropout = 0.1;
    return all;
  };
  const auto reference = testing::train_unpipelined(dropped("none"), 3);
  const Job job = prepare_job(dropped("chimera"));
  EXPECT_FALSE(Loader(job, {GroupId(0), WorkerId(0)}, at::kCPU).dealt(0)->micro_batch_at.empty());
  EXPECT_THAT(testing::train(job, 3).losses, ::testing::Pointwise(::testing::DoubleNear(1e-12), reference.losses));
}

TEST_F(DataTest, SplitIsNotPack) {
  const auto split = testing::train_unpipelined(options("none", {4, 4}, Documents::Split), 1);
  const auto pack = testing::train_unpipelined(options("none", {4, 4}, Documents::Pack), 1);
  EXPECT_GT(std::abs(split.losses[0] - pack.losses[0]), 1e-6);
}

/// The bytes of the text as 16-bit tokens: the same samples in the same order.
TEST_F(DataTest, TokensOfATextTrainAsTheTextDoes) {
  TrainOptions text = testing::small_options("gpt2-tiny", "none", {4, 4});
  text.data.validate_every = 2;
  TrainOptions tokens = text;
  std::string wide;
  for (const char byte : testing::read_file(text.data.training)) wide += {byte, '\0'};
  tokens.data.training = scratch_.write("tokens.bin", wide);
  const auto expected = testing::train_unpipelined(text, 2);
  const auto actual = testing::train_unpipelined(tokens, 2);
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.validation_losses, expected.validation_losses);
}

TEST_F(DataTest, SchedulesTrainOnTheSameMixture) {
  const auto mixture = [&](const std::string& schedule) {
    TrainOptions all = options(schedule, {4, 4, 2}, Documents::Pack);
    all.data.training = "0.3:" + testing::text_file() + " 0.7:" + data_;
    return all;
  };
  const auto reference = testing::train_unpipelined(mixture("none"), 3);
  const auto pipelined = testing::train(mixture("chimera"), 3);
  for (std::size_t step = 0; step < 3; ++step)
    EXPECT_NEAR(pipelined.losses[step], reference.losses[step], 1e-12 * reference.losses[step]);
}

/// With mmap, SIGBUS would kill the process.
TEST_F(DataTest, ATextThatShrinksEndsTheRunWithAnError) {
  TrainOptions all = testing::small_options("gpt2-tiny", "none", {1, 4});
  all.data.training = scratch_.write("text.txt", testing::read_file(all.data.training));
  const Job job = prepare_job(all);
  std::filesystem::resize_file(all.data.training, 10);
  const auto failed = try_rank_threads(1, job.run.rank_groups(), [&](RankId rank, Transport& transport) {
    Trainer(job, rank, transport).train_step(0);
  });
  ASSERT_TRUE(failed.has_value());
  EXPECT_THAT([&] { std::rethrow_exception(failed->error); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("text.txt has shrunk")));
}

}  // namespace
}  // namespace chimera


#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "core/json.h"
#include "support/refusal.h"
#include "training.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// A small model trained on the sample text, and that text.
class TrainingEvaluateTest : public ::testing::Test {
 protected:
  void leave(const std::string& model) {
    const ProgramResult result =
        run_program(small_training(scratch_) +
                    split("--model {} --schedule none --micro-batches 2 --steps 1 --export {}", model, from_));
    ASSERT_EQ(result.exit_code, 0) << result.messages;
  }

  [[nodiscard]] Words command(const Words& flags) const {
    Words all = {"evaluate"};
    for (const Words& pair : {Words{"--from", from_}, {"--data", data_}, {"--sequence", "32"}, {"--threads", "1"}}) {
      if (std::ranges::find(flags, pair[0]) == flags.end()) all = all + pair;
    }
    return all + flags;
  }

  Scratch scratch_;
  std::string from_ = scratch_.path("model");
  std::string data_ = scratch_.write("text.txt", sample_text());
};

TEST_F(TrainingEvaluateTest, PrintsLossPerplexityAndTokens) {
  leave("gpt2-tiny");
  const ProgramResult text = succeeded(run_program(command({})));
  EXPECT_THAT(text.output, HasSubstr("text.txt: text, "));
  EXPECT_THAT(text.output, HasSubstr("loss "));
  const json report = read_json(output_of(command("--format json")));
  EXPECT_EQ(report["tokens"], (sample_text().size() - 1) / 32 * 32);
  EXPECT_EQ(report["windows"], (sample_text().size() - 1) / 32);
  EXPECT_GT(report["loss"], 1);
  EXPECT_EQ(report["perplexity"], std::exp(report["loss"].get<double>()));
}

TEST_F(TrainingEvaluateTest, RefusesWhatDoesNotFit) {
  leave("gpt2-tiny");
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int i = 0; i < 295; ++i) words += "word" + std::to_string(i) + "\n";
  const std::string tokenizer = scratch_.write("vocab.txt", words);
  const std::string hollow = scratch_.path("hollow");
  std::filesystem::create_directory(hollow);
  std::filesystem::copy(from_ + "/config.json", hollow + "/config.json");
  for (const auto& [flags, parts] : std::vector<Refusal>{
           {"--sequence 2000", {"--sequence 2000 is longer than the 1024 positions"}},
           {"--sequence 0", {"--sequence must be 1 to"}},
           {"--sequence many", {"--sequence: 'many' is not a whole number"}},
           {"--micro-batch-size 0", {"--micro-batch-size must be 1 to"}},
           {"--micro-batch-size 1000000000", {"more than any machine holds"}},
           {"--seed -1", {"--seed must be 0 to"}},
           {"--seed 2", {"--seed is for the pairs and masks of BERT"}},
           {"--force-bfloat16", {"--force-bfloat16 is for --dtype bfloat16"}},
           {"--threads 2000", {"--threads must be 0 to 1024"}},
           {"--dtype float16", {"--dtype 'float16'", "did you mean 'bfloat16'?"}},
           {{"--data", scratch_.write("short.txt", std::string(32, 'x'))}, {"short.txt has 32 tokens", "needs 33"}},
           {"--data missing.txt", {"missing.txt", "No such file"}},
           {{"--data", "0.5:" + data_ + " 0.5:" + data_}, {"is a mixture; give one file or folder"}},
           {{"--data", scratch_.write("raw.bin", std::string(400, 'a'))}, {"raw.bin: token 0 is 24929", "0 to 255"}},
           {{"--tokenizer", tokenizer}, {"vocab.txt has 300 tokens", "a vocabulary of 256"}},
           {"--tokenizer missing.json", {"missing.json"}},
           {"--from nowhere", {"nowhere: is not a folder"}},
           {{"--from", hollow}, {"hollow", "model.safetensors"}},
           {{"--form", from_}, {"unknown flag '--form'", "did you mean '--from'?"}},
       }) {
    expect_refusal({command(flags), parts});
  }
  expect_refusal({split("evaluate --data {} --sequence 32", data_), {"--from is required"}});
  expect_refusal({split("evaluate --from {} --sequence 32", from_), {"--data is required"}});
  expect_refusal({split("evaluate --from {} --data {}", from_, data_), {"--sequence is required"}});
}

TEST_F(TrainingEvaluateTest, BertNeedsRoomForTwoTextsAndNamesOfItsTokens) {
  leave("bert-tiny");
  expect_refusal({command("--sequence 7"), {"a sequence of 7 tokens; expected 8"}});
  const std::string tokens(400, '\0');
  expect_refusal(
      {command({"--data", scratch_.write("raw.bin", tokens)}), {"needs the ids of [CLS], [SEP] and [MASK]"}});
  EXPECT_EQ(run_program(command({})).exit_code, 0);
}

}  // namespace
}  // namespace chimera::testing

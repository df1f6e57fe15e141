// Text generated from folders of small models, by one process and by several.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <pty.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <map>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/json.h"
#include "support/refusal.h"
#include "training.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

void train_into(const std::string& folder, const std::string& model, const Words& more) {
  const Scratch scratch;
  succeeded(
      run_program(small_training(scratch) + more +
                  split("--model {} --schedule none --micro-batches 2 --steps 30 --learning-rate 0.01 --export {}",
                        model, folder)));
}

/// The folder of a model trained on a few sentences. It is a copy: each model is trained once for all tests.
std::string trained_folder(const Scratch& scratch, const std::string& model, const Words& more = {}) {
  static std::map<Words, Scratch> trained;
  const auto [original, is_new] = trained.try_emplace(Words{model} + more);
  if (is_new) train_into(original->second.path("model"), model, more);
  std::string folder = scratch.path("model");
  std::filesystem::copy(original->second.path("model"), folder, std::filesystem::copy_options::recursive);
  return folder;
}

/// One thread, because on a busy machine threads wait long for each other.
Words generate(const std::string& folder, const Words& more, const std::string& threads = "1") {
  return split("generate --from {} --threads {}", folder, threads) + more;
}

/// The prompts of the JSON output.
json said(const std::string& folder, const Words& more, const std::string& threads = "1") {
  const ProgramResult result = succeeded(run_program(generate(folder, more, threads) + "--format json"));
  EXPECT_EQ(result.messages, "");
  expect_clean(result);
  return result.exit_code == 0 ? read_json(result.output)["prompts"] : json();
}

TEST(TrainingGenerateTest, ContinuesSeveralPromptsInOrder) {
  const Scratch scratch;
  const std::string folder = trained_folder(scratch, "gpt2-tiny");
  const Words prompts = "--prompt ab --prompt-ids 97,98 --prompt xyz --tokens 12";
  const json all = said(folder, prompts);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0], all[1]) << "bytes are tokens";
  EXPECT_EQ(all[2], said(folder, "--prompt xyz --tokens 12")[0]);
  for (const json& prompt : all) EXPECT_EQ(prompt["ids"].size(), 12U);
  const ProgramResult text = run_program(generate(folder, prompts));
  EXPECT_EQ(text.output, "prompt 1:\n" + all[0]["text"].get<std::string>() + "\n\nprompt 2:\n" +
                             all[1]["text"].get<std::string>() + "\n\nprompt 3:\n" + all[2]["text"].get<std::string>() +
                             "\n");
}

TEST(TrainingGenerateTest, StagesGenerateTheSameAsOneProcess) {
  for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
    const Scratch scratch;
    const std::string folder = trained_folder(scratch, model);
    for (const Words sampling : {"", "--temperature 1.3 --top-k 40 --top-p 0.95 --seed 7"}) {
      const Words words =
          Words{"--prompt", "the ", "--prompt-ids", "32", "--tokens", "20", "--dtype", "float64"} + sampling;
      const json expected = said(folder, words);
      for (const char* stages : {"2", "4"})
        EXPECT_EQ(said(folder, words + Words{"--stages", stages}), expected) << model << ", stages " << stages;
    }
  }
}

TEST(TrainingGenerateTest, NewestCheckpointUsesTheRunsTokenizer) {
  const Scratch scratch;
  const std::string run = scratch.path("run");
  const std::string model = scratch.path("model");
  succeeded(run_program(
      small_training(scratch) +
      split("--schedule none --micro-batches 2 --steps 4 --checkpoint {} --save-every 2 --export {}", run, model)));
  const Words words = {"--prompt", "the ", "--tokens", "12", "--temperature", "1"};
  const json expected = said(model, words);
  EXPECT_EQ(said(run, words), expected);
  EXPECT_EQ(said(run, words + "--stages 2"), expected) << "ranks take what the launcher found";
}

TEST(TrainingGenerateTest, DrawsDependOnTheSeed) {
  const Scratch scratch;
  const std::string folder = trained_folder(scratch, "gpt2-tiny");
  const Words words = "--prompt a --prompt a --tokens 40 --temperature 2";
  const json first = said(folder, words);
  EXPECT_EQ(said(folder, words + "--seed 1", /*threads=*/"2"), first);
  EXPECT_NE(first[0], first[1]) << "each prompt has draws of its own";
  EXPECT_NE(said(folder, words + "--seed 2"), first);
}

TEST(TrainingGenerateTest, StopsAtTextsAndTokens) {
  const Scratch scratch;
  const std::string folder = trained_folder(scratch, "gpt2-tiny");
  const Words words = {"--prompt", "the ", "--tokens", "40", "--temperature", "1.5"};
  const std::string text = said(folder, words)[0]["text"];
  const std::string stop = text.substr(10, 3);
  EXPECT_EQ(said(folder, words + Words{"--stop", stop, "--stop", "\x01"})[0]["text"], text.substr(0, text.find(stop)));
  const json ids = said(folder, words)[0]["ids"];
  scratch.write("model/generation_config.json", json_text(json{{"eos_token_id", {300, ids[6]}}}));
  const json ended = said(folder, words)[0]["ids"];
  EXPECT_LE(ended.size(), 7U);
  EXPECT_EQ(ended.back(), ids[6]) << "the token that ends it belongs to it";
}

TEST(TrainingGenerateTest, PrintsTokenIdsWithoutATokenizer) {
  const Scratch scratch;
  const std::string folder = trained_folder(scratch, "gpt2-tiny", "--vocabulary 300");
  std::filesystem::remove(folder + "/tokenizer.json");
  const json prompt = said(folder, "--prompt-ids 97,98 --tokens 3")[0];
  ASSERT_EQ(prompt["ids"].size(), 3U);
  EXPECT_TRUE(prompt["text"].is_null());
  const ProgramResult text = run_program(generate(folder, "--prompt-ids 97,98 --tokens 3"));
  const json& ids = prompt["ids"];
  EXPECT_EQ(text.output, json_text(ids[0]) + "," + json_text(ids[1]) + "," + json_text(ids[2]) + "\n");
  expect_refusal({generate(folder, "--prompt ab"), {"has no tokenizer", "vocabulary of 300", "--prompt-ids"}});
  expect_refusal({generate(folder, "--prompt-ids 1 --stop x"), {"--stop", "no tokenizer"}});
  EXPECT_EQ(said(folder, "--prompt ab --tokenizer bytes --tokens 3")[0]["ids"], ids);
}

TEST(TrainingGenerateTest, SaysThatAContinuationIsBlank) {
  const Scratch scratch;
  const std::string blanks = scratch.write("blanks.txt", std::string(20'000, ' '));
  const std::string folder = scratch.path("model");
  const ProgramResult trained =
      run_program(split("train --data {} --model gpt2-tiny --schedule none --micro-batches 2 --steps 10 "
                        "--learning-rate 0.01 --threads 1 --sequence 32 --export {}",
                        blanks, folder));
  ASSERT_EQ(trained.exit_code, 0) << trained.messages;
  const ProgramResult result = run_program(generate(folder, {"--prompt", " ", "--tokens", "20"}));
  EXPECT_EQ(result.output, std::string(20, ' ') + "\n");
  EXPECT_THAT(result.messages, HasSubstr("chimera: the model continues with 20 tokens of blanks only"));
}

/// All that the program writes to a terminal.
std::string shown_on_terminal(const Words& arguments) {
  int terminal = -1;
  int program_side = -1;
  check_system(::openpty(&terminal, &program_side, nullptr, nullptr, nullptr), "open a terminal");
  const FileDescriptor reader(terminal);
  {
    const FileDescriptor writer(program_side);
    EXPECT_EQ(ProgramRun(arguments, {.output = writer.get()}).wait().exit_code, 0);
  }
  std::string shown;
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; (count = ::read(reader.get(), buffer.data(), buffer.size())) > 0;)
    shown.append(buffer.data(), static_cast<std::size_t>(count));
  return shown;
}

TEST(TrainingGenerateTest, ATerminalShowsThePromptBeforeItsContinuation) {
  const Scratch scratch;
  const std::string folder = trained_folder(scratch, "gpt2-tiny");
  const Words arguments = generate(folder, {"--prompt", "the first ", "--tokens", "3"});
  const std::string piped = run_program(arguments).output;
  const std::string shown = shown_on_terminal(arguments);
  EXPECT_EQ(shown.substr(0, 10), "the first ");
  EXPECT_EQ(shown.substr(10, 3), piped.substr(0, 3));
}

TEST(TrainingGenerateTest, RefusesWhatDoesNotFit) {
  const Scratch scratch;
  const std::string folder = trained_folder(scratch, "gpt2-tiny");
  const auto refuses = [&](const Words& more, const Words& words) { expect_refusal({generate(folder, more), words}); };
  const Words a = "--prompt a";
  refuses({}, {"a prompt is missing", "--prompt-ids"});
  refuses({"--prompt", ""}, {"the prompt has no tokens"});
  refuses({"--prompt", std::string(1025, 'a')}, {"the prompt has 1025 tokens", "1024 positions"});
  refuses(split("--prompt a --prompt {} --tokens 30", std::string(1000, 'b')), {"prompt 2 has 1000", "at most 25"});
  refuses({"--prompt", "\xFF"}, {"byte 0 is not valid UTF-8"});
  refuses("--prompt-ids 1,256", {"token 256", "vocabulary of 256"});
  for (const char* wrong : {"", "1,", ",1", "1 2", "-1", "x", "1,99999999999"})
    refuses({std::string("--prompt-ids=") + wrong}, {"--prompt-ids"});
  refuses(a + "--temperature -1", {"--temperature"});
  refuses(a + "--temperature nan", {"--temperature"});
  refuses(a + "--temperature 1 --top-p 0", {"--top-p must be above 0"});
  refuses(a + "--temperature 1 --top-p 1.1", {"--top-p must be above 0 and at most 1"});
  refuses(a + "--top-k -3", {"--top-k"});
  for (const std::string& flag : Words("--top-k --top-p --seed")) {
    refuses(a + Words{flag, "1"}, {flag + " is for sampling; give --temperature above 0 too"});
  }
  refuses(a + "--seed -1", {"--seed"});
  refuses(a + "--tokens -1", {"--tokens"});
  refuses(a + "--tokens many", {"--tokens: 'many'"});
  refuses(a + Words{"--stop", ""}, {"--stop: the text is empty"});
  refuses(a + "--stages 5", {"stages", "4"});
  refuses(a + "--stages 0", {"--stages must be 1"});
  refuses(a + "--dtype float8", {"--dtype", "float32"});
  refuses(a + "--format csv", {"--format"});
  refuses(a + Words{"--tokenizer", scratch.path("none")}, {"none"});
  scratch.write("model/generation_config.json", "[]");
  refuses(a, {"generation_config.json: is not a JSON object"});
  expect_refusal({"generate --prompt a", {"--from is required"}});
  expect_refusal({split("generate --from {} --prompt a", scratch.path("none")), {"none: is not a folder"}});
}

TEST(TrainingGenerateTest, RefusesBert) {
  const Scratch scratch;
  expect_refusal(
      {generate(trained_folder(scratch, "bert-tiny"), "--prompt a"), {"is a BERT", "cannot continue a text"}});
}

}  // namespace
}  // namespace chimera::testing

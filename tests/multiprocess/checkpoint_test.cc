// Runs that are killed and resume on other layouts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "multiprocess/training.h"
#include "support/refusal.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

/// 8 micro-batches per step over all groups, in canonical order.
Words canonical_training(const Scratch& scratch, const std::string& metrics) {
  return small_training(scratch, metrics) + "--model gpt2-tiny --steps 8 --reduction canonical --dropout 0.1";
}

const Words kChimera = "--schedule chimera --stages 4 --micro-batches 8";
const Words kTwoGroups = "--schedule 1f1b --stages 2 --micro-batches 4 --data-parallel 2 --transport threads";

class TrainingCheckpointTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TrainingCheckpointTest, KilledRunResumesWithTheSameNumbers) {
  const Scratch scratch;
  const Words saves = split("--checkpoint {} --save-every 2", scratch.path("run"));
  ProgramSetup fault;
  fault.environment = {std::string("CHIMERA_FAULT=") + GetParam()};
  const ProgramResult killed =
      ProgramRun(canonical_training(scratch, "metrics.jsonl") + kChimera + saves, fault).wait();
  EXPECT_NE(killed.exit_code, 0) << GetParam();
  const ProgramResult rest =
      run_program(canonical_training(scratch, "metrics.jsonl") + kTwoGroups + saves + "--resume auto");
  EXPECT_EQ(rest.exit_code, 0) << rest.messages;
  const ProgramResult clean = succeeded(run_program(canonical_training(scratch, "clean.jsonl") + kTwoGroups));
  const auto expected = hashes_in(scratch, "clean.jsonl");
  ASSERT_EQ(expected.size(), 8U);
  EXPECT_EQ(hashes_in(scratch), expected);
}

INSTANTIATE_TEST_SUITE_P(, TrainingCheckpointTest,
                         ::testing::Values("kill@step:3:7", "kill@before-rename:0:2", "kill-launcher@updated:1:6"));

/// A small run in `run`, without a file of metrics of its own.
Words small_run(const Scratch& scratch, const std::string& steps) {
  const std::string text = scratch.write("text.txt", sample_text());
  const std::string run = scratch.path("run");
  return split(
      "train --data {} --model gpt2-tiny --schedule none --sequence 32 --micro-batch-size 1 --threads 1 --checkpoint "
      "{} --save-every 2 --steps {}",
      text, run, steps);
}

TEST(TrainingFolderTest, OutputsMayBeInTheFolderThatTheRunMakes) {
  const Scratch scratch;
  succeeded(run_program(small_run(scratch, "2") +
                        split("--metrics {} --report {} --trace {}", scratch.path("run/metrics.jsonl"),
                              scratch.path("run/report.html"), scratch.path("new/trace.json"))));
  EXPECT_EQ(read_metrics(scratch.path("run/metrics.jsonl")).size(), 2U);
  EXPECT_TRUE(std::filesystem::exists(scratch.path("run/report.html")));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("new/trace.json")));
}

TEST(TrainingFolderTest, AResumedRunContinuesItsOwnMetricsOnly) {
  const Scratch scratch;
  const std::string metrics = scratch.path("run/metrics.jsonl");
  ASSERT_EQ(run_program(small_run(scratch, "4")).exit_code, 0);
  EXPECT_EQ(read_metrics(metrics).size(), 4U) << "the default";
  const std::string own = read_file(metrics);
  const Words resumed = small_run(scratch, "6") + "--resume auto";
  for (const std::string& foreign : {std::string("a diary\n"), own.substr(0, own.find('\n') + 1),
                                     std::string("{\"step\": 4, \"loss\": 1}\n{\"step\": 5, \"loss\": 1}\n")}) {
    const std::string path = scratch.write("other.jsonl", foreign);
    const ProgramResult refused = run_program(resumed + Words{"--metrics", path});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.messages, ::testing::AllOf(HasSubstr("--metrics " + path), HasSubstr("--overwrite")));
    EXPECT_EQ(read_file(path), foreign);
  }
  const std::string diary = scratch.write("diary.html", "a diary");
  for (const std::string& flag : Words("--report --timeline --trace --op-times --tensor-memory")) {
    const ProgramResult refused = run_program(resumed + Words{flag, diary});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.messages, HasSubstr(flag + " " + diary + ": exists already and is not of this run"));
    EXPECT_EQ(read_file(diary), "a diary");
  }
  const std::string report = scratch.write("report.html", "<!doctype html>\nof the start before");
  succeeded(run_program(resumed + Words{"--report", report}));
  EXPECT_THAT(read_file(report), HasSubstr("</html>"));
  EXPECT_THAT(read_file(metrics), ::testing::StartsWith(own));
  EXPECT_EQ(read_metrics(metrics).size(), 6U);
}

/// Runs the program beside a ProgramRun, without its messages.
int exit_code_of(Words words) {
  words.insert(words.begin(), CHIMERA_PROGRAM);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t process = ::fork();
  if (process == 0) {
    ::close(STDERR_FILENO);
    ::execv(CHIMERA_PROGRAM, arguments.data());
    ::_exit(127);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  return WEXITSTATUS(status);
}

TEST(TrainingFolderTest, ARunThatGoesOnKeepsItsFiles) {
  const Scratch scratch;
  const std::string metrics = scratch.path("m.jsonl");
  const std::string folder = scratch.path("run");
  ProgramRun run(small_training(scratch, "m.jsonl") +
                 split("--model gpt2-tiny --stages 2 --steps 1000000 --checkpoint {}", folder));
  run.await_message("step 1/");
  const Words second =
      split("train --data {} --model gpt2-tiny --sequence 32 --steps 1 --overwrite", scratch.path("text.txt"));
  EXPECT_EQ(exit_code_of(second + Words{"--metrics", metrics}), 2);
  EXPECT_EQ(exit_code_of(second + split("--metrics {} --checkpoint {}", scratch.path("other"), folder)), 2);
  EXPECT_EQ(exit_code_of(second + Words{"--flight-record", folder + "/flight"}), 2);
  EXPECT_TRUE(std::filesystem::exists(folder + "/flight/rank-0000.flight"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/flight-previous"));
  run.send(run.process(), SIGTERM);
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.exit_code, 75) << result.messages;
  const auto steps = read_metrics(metrics);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.front().at("step"), 1);
  EXPECT_EQ(steps.back().at("step"), steps.size()) << "no line is lost";
}

TEST(TrainingFolderTest, AResumedRunKeepsItsSchedule) {
  const Scratch scratch;
  Words words = small_run(scratch, "2") + "--stages 2 --transport threads";
  const auto schedule = std::ranges::find(words, "--schedule");
  words.erase(schedule, schedule + 2);
  ASSERT_EQ(run_program(words + "--schedule gpipe").exit_code, 0);
  EXPECT_THAT(run_program(words + "--steps 4 --resume auto").output, HasSubstr("schedule gpipe"));
  EXPECT_THAT(run_program(words + "--dry-run").output, ::testing::Not(HasSubstr("schedule gpipe")));
}

TEST(TrainingFolderTest, AResumedRunKeepsAsManyCheckpointsAsBefore) {
  const Scratch scratch;
  ASSERT_EQ(run_program(small_run(scratch, "10") + "--keep 100").exit_code, 0);
  const auto saved = [&] {
    const auto list = read_json(run_program(split("checkpoint list {} --format json", scratch.path("run"))).output);
    return list.at("checkpoints").size();
  };
  const std::size_t before = saved();  // a save that begins before the last one has ended is left out
  const ProgramResult rest = succeeded(run_program(small_run(scratch, "12") + "--resume auto"));
  EXPECT_THAT(rest.messages, HasSubstr("--keep 100 --keep-every 0, as in the saved run"));
  EXPECT_GT(saved(), before);
  EXPECT_EQ(run_program(small_run(scratch, "14") + "--resume auto --keep 2").exit_code, 0);
  EXPECT_LE(saved(), 2U);
}

TEST(TrainingFolderTest, ResumesBehindALinkAndSaysWhatItPassesOver) {
  const Scratch scratch;
  ASSERT_EQ(run_program(small_run(scratch, "2")).exit_code, 0);
  std::filesystem::rename(scratch.path("run/step-00000002"), scratch.path("elsewhere"));
  std::filesystem::create_directory_symlink(scratch.path("elsewhere"), scratch.path("run/step-00000002"));
  static_cast<void>(scratch.write("run/step-00000003", "a file"));
  const ProgramResult rest = succeeded(run_program(small_run(scratch, "4") + "--resume auto"));
  EXPECT_THAT(rest.messages, HasSubstr("step-00000003: is not the folder of a checkpoint"));
  const auto steps = read_metrics(scratch.path("run/metrics.jsonl"));
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_TRUE(std::filesystem::exists(scratch.path("elsewhere/manifest.json")));
  std::filesystem::remove(scratch.path("run/step-00000002"));
  std::filesystem::remove_all(scratch.path("run/step-00000004"));
  expect_refusal({small_run(scratch, "4") + "--resume auto",
                  {"has no good checkpoint", "step-00000003: is not the folder of a checkpoint"}});
}

TEST(TrainingFolderTest, EveryReaderNamesADamagedCheckpointAndTheOlderOneThatItUses) {
  const Scratch scratch;
  const std::string run = scratch.path("run");
  ASSERT_EQ(run_program(small_run(scratch, "4")).exit_code, 0);
  const std::string copy = scratch.path("copy");
  std::filesystem::copy(run, copy, std::filesystem::copy_options::recursive);
  const std::string damaged = run + "/step-00000004";
  std::filesystem::resize_file(damaged + "/config.json", 7);
  const std::string data = scratch.write("text.txt", sample_text());
  for (const Words& command : std::vector<Words>{
           split("evaluate --from {} --data {} --sequence 32", run, data),
           {"generate", "--from", run, "--prompt", "a", "--tokens", "2"},
           {"generate", "--from", run, "--prompt", "a", "--tokens", "2", "--stages", "2"},
           {"export", run, "--output", scratch.path("model")},
           {"train", "--from", run, "--data", data, "--sequence", "32", "--steps", "1"},
           {"train", "--from", run, "--data", data, "--sequence", "32", "--steps", "1", "--dry-run"},
           {"checkpoint", "diff", run, copy + "/step-00000002"},
           small_run(scratch, "4") + "--resume auto",
       }) {
    const ProgramResult result = run_program(command);
    EXPECT_EQ(result.exit_code, 0) << command[0] << result.messages;
    EXPECT_THAT(result.messages, HasSubstr("chimera: refused " + damaged + "/config.json: ")) << command[0];
    EXPECT_THAT(result.messages, HasSubstr("chimera: uses " + run + "/step-00000002 instead\n")) << command[0];
  }
}

ProgramSetup with_files_up_to(rlim_t bytes) {
  ProgramSetup setup;
  setup.in_process = [bytes] {
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  return setup;
}

TEST(TrainingFolderTest, NoLimitOnFileSizesKillsARank) {
  for (const rlim_t bytes : {1'000, 30'000, 100'000, 400'000}) {  // shared memory, metrics or weights do not fit
    const Scratch scratch;
    const ProgramResult result = ProgramRun(small_run(scratch, "1"), with_files_up_to(bytes)).wait();
    EXPECT_EQ(result.killed_by, 0) << bytes;
    EXPECT_THAT(result.exit_code, ::testing::AnyOf(1, 2)) << bytes << ": " << result.messages;
    EXPECT_THAT(result.messages, HasSubstr("File too large")) << bytes;
    EXPECT_THAT(result.messages, Not(HasSubstr("signal"))) << bytes;
    EXPECT_EQ(result.orphans, 0) << bytes;
  }
}

TEST(TrainingFolderTest, ALimitOnFileSizesEndsNoRun) {
  const Scratch scratch;
  const ProgramSetup setup = with_files_up_to(1'500'000);  // the ranks' shared memory, but not the optimizer's state
  const ProgramResult result = ProgramRun(small_run(scratch, "3"), setup).wait();
  EXPECT_EQ(result.killed_by, 0);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.messages, HasSubstr("the checkpoint of step 2 is not saved: "));
  EXPECT_THAT(result.messages, HasSubstr("(File too large); training continues"));
  EXPECT_THAT(result.messages, HasSubstr("the last checkpoint is tried again in 0.25 s"));
  EXPECT_THAT(result.messages, HasSubstr("the last step is not saved"));
}

/// The manifest has the name of the tokenizer.
TEST(TrainingNamesTest, ATokenizerWhoseNameIsNotUtf8CostsNoWeights) {
  const Scratch scratch;
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int i = 0; i < 295; ++i) words += "word" + std::to_string(i) + "\n";
  const std::string tokenizer = scratch.write("bad\xFF.txt", words);
  const std::string run = scratch.path("run\xE9");
  succeeded(run_program(
      small_training(scratch) +
      split("--model gpt2-tiny --stages 2 --steps 2 --tokenizer {} --vocabulary 300 --checkpoint {}", tokenizer, run)));
  for (const char* command : {"list", "show", "verify"}) {
    const std::string listed = output_of(split("checkpoint {} {} --format json", command, run));
    EXPECT_THAT(listed, HasSubstr("\uFFFD/step-00000002"));
    EXPECT_FALSE(try_json(listed).is_discarded()) << listed;
  }
  const std::string model = scratch.path("model\xE9");
  EXPECT_EQ(run_program(split("export {} --output {}", run, model)).exit_code, 0);
  for (const Words& command : {split("checkpoint diff {} {}", run, run), Words{"model", model}}) {
    const std::string result = output_of(command + "--format json");
    EXPECT_FALSE(try_json(result).is_discarded()) << result;
  }
}

/// Trains with a tokenizer of 300 words, in `run`.
Words run_with_words(const Scratch& scratch, const std::string& tokenizer) {
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int i = 0; i < 295; ++i) words += "word" + std::to_string(i) + "\n";
  return small_training(scratch) +
         split("--model gpt2-tiny --stages 2 --steps 2 --tokenizer {} --vocabulary 300 --checkpoint {}",
               scratch.write(tokenizer, words), scratch.path("run"));
}

TEST(TrainingTokenizerTest, ACheckpointIsUsedWithItsOwnCopy) {
  const Scratch scratch;
  ASSERT_EQ(run_program(run_with_words(scratch, "words.txt")).exit_code, 0);
  const std::string text = scratch.write("other.txt", "word1 word2 word3 word4 word5 word6 word7 word8 word9 word10");
  const Words evaluate = split("evaluate --from {} --data {} --sequence 4", scratch.path("run"), text);
  const std::string before = output_of(evaluate + "--format json");
  std::filesystem::remove(scratch.path("words.txt"));
  const ProgramResult after = run_program(evaluate + "--format json");
  EXPECT_EQ(try_json(after.output)["loss"], try_json(before)["loss"]) << after.messages;
  EXPECT_EQ(run_program({"checkpoint", "verify", scratch.path("run")}).exit_code, 0);

  const std::string copy = scratch.path("run/step-00000002/vocab.txt");
  std::string changed = read_file(copy);
  changed.replace(changed.find("word2"), 5, "sword");
  std::ofstream(copy) << changed;
  expect_refusal({evaluate, {copy + ": differs from its hash"}});
  expect_refusal(
      {split("export {} --output {}", scratch.path("run"), scratch.path("model")), {copy + ": differs from its hash"}});
  std::filesystem::remove(copy);
  expect_refusal({evaluate, {copy + ": is missing"}});
  EXPECT_EQ(run_program({"checkpoint", "verify", scratch.path("run")}).exit_code, 1);
}

TEST(TrainingTokenizerTest, AResumeWithoutTheTokenizerNamesBoth) {
  const Scratch scratch;
  ASSERT_EQ(run_program(run_with_words(scratch, "words.txt")).exit_code, 0);
  expect_refusal({small_training(scratch) +
                      split("--model gpt2-tiny --stages 2 --steps 4 --vocabulary 300 --checkpoint {} --resume auto",
                            scratch.path("run")),
                  {"its tokenizer was " + scratch.path("words.txt") + ", this run has bytes: give --tokenizer " +
                   scratch.path("run/step-00000002")}});
}

TEST(TrainingFolderTest, AResumeWithMoreStepsSaysThatTheRateJumps) {
  const Scratch scratch;
  ASSERT_EQ(run_program(small_run(scratch, "4")).exit_code, 0);
  const ProgramResult rest = succeeded(run_program(small_run(scratch, "8") + "--resume auto"));
  EXPECT_THAT(rest.messages, HasSubstr("the learning rate jumps from 0.0001 in step 4 to 0.000"));
  ASSERT_EQ(run_program(small_run(scratch, "8") + "--resume auto").exit_code, 0);
}

TEST(CheckpointCommandTest, ListsAndVerifiesCheckpoints) {
  const Scratch scratch;
  const std::string folder = scratch.path("run");
  const std::string second = folder + "/step-00000002";
  const std::string fourth = folder + "/step-00000004";
  const ProgramResult trained =
      run_program(small_training(scratch) +
                  split("--model gpt2-tiny --schedule none --steps 4 --checkpoint {} --save-every 2", folder));
  ASSERT_EQ(trained.exit_code, 0) << trained.messages;
  const auto ask = [](const Words& words) { return run_program(Words{"checkpoint"} + words); };
  const auto json = [&](const Words& words) { return read_json(ask(words + "--format json").output); };

  EXPECT_THAT(ask({"list", folder}).output, HasSubstr(fourth + "  step 4  "));
  const auto list = json({"list", folder}).at("checkpoints");
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[1].at("loss"), read_metrics(scratch.path("metrics.jsonl")).back().at("loss"));
  EXPECT_EQ(json({"show", second}).at("run").at("model").at("layers"), 4);
  EXPECT_THAT(ask({"show", folder}).output, HasSubstr("schedule=none"));

  EXPECT_EQ(ask({"diff", second, second}).exit_code, 0);
  const ProgramResult differing = ask({"diff", second, folder});
  EXPECT_EQ(differing.exit_code, 1);
  EXPECT_THAT(differing.output, HasSubstr("transformer.wte.weight: "));
  for (const auto& tensor : json({"diff", second, folder}).at("tensors")) {
    EXPECT_GT(tensor.at("largest"), 0) << tensor;
    EXPECT_LT(tensor.at("relative"), 2) << tensor;
  }

  EXPECT_EQ(run_program(split("export {} --output {}", folder, scratch.path("model"))).exit_code, 0);
  EXPECT_EQ(run_program({"model", scratch.path("model")}).exit_code, 0);
  EXPECT_EQ(read_file(scratch.path("model/config.json")), read_file(fourth + "/config.json"));

  EXPECT_EQ(ask({"verify", folder}).exit_code, 0);
  const std::string weights = fourth + "/model.safetensors";
  std::string bytes = read_file(weights);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(weights, std::ios::binary) << bytes;
  const ProgramResult verdict = ask({"verify", folder});
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_THAT(verdict.output, HasSubstr(second + ": good"));
  EXPECT_THAT(verdict.output, HasSubstr(weights + ": differs from its hash"));
  EXPECT_EQ(json({"verify", fourth}).at("checkpoints")[0].at("good"), false);
  EXPECT_EQ(ask({"list", scratch.path("nothing")}).exit_code, 2);
  EXPECT_EQ(ask({"diff", fourth, second}).exit_code, 2);
}

}  // namespace
}  // namespace chimera::testing

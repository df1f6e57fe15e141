// Errors that `train` reports before it starts a rank or touches the metrics file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "support/paths.h"
#include "support/refusal.h"
#include "training.h"

namespace chimera::testing {
namespace {

/// `train` with these flags; a small model, valid data and a metrics file by default.
class TrainRefusalTest : public ::testing::Test {
 protected:
  void expect_refusals(const std::vector<Refusal>& refusals) {
    for (const auto& [flags, words] : refusals) {
      expect_refusal({command(flags), words});
      EXPECT_EQ(read_file(metrics_), "the last run\n") << "the metrics file was touched";
    }
  }

  [[nodiscard]] Words command(const Words& flags) const {
    Words all = "train --overwrite";
    for (const Words& pair : std::vector<Words>{"--model gpt2-tiny",
                                                {"--data", data_},
                                                "--schedule chimera",
                                                "--sequence 32",
                                                "--steps 2",
                                                {"--metrics", metrics_}}) {
      if (std::ranges::find(flags, pair[0]) == flags.end()) all += pair;
    }
    return all + flags;
  }

  Scratch scratch_;
  std::string data_ = scratch_.write("text.txt", sample_text());
  std::string metrics_ = scratch_.write("metrics.jsonl", "the last run\n");
};

TEST_F(TrainRefusalTest, Data) {
  const std::string loop = scratch_.path("loop");
  std::filesystem::create_symlink(loop, loop);
  const std::string short_text = sample_text().substr(0, 400);
  expect_refusals({
      {{"--data", ""}, {"--data: the name of a file is missing"}},
      {"--data missing.txt", {"missing.txt", "No such file", "expected a UTF-8 text file"}},
      {{"--data", loop}, {loop, "symbolic links"}},
      {"--data /dev/zero", {"not a regular file"}},
      {{"--data", scratch_.write("empty.txt", "")}, {"empty.txt: it is empty"}},
      {{"--data", scratch_.write("short.txt", "thirty-three characters are few. ")},
       {"(training) has 32 tokens, one sample needs 33"}},
      {split("--data {} --validate-every 1", scratch_.write("page.txt", short_text)),
       {"(validation) has 20 tokens, one sample needs 33"}},
      {split("--data {} --model bert-tiny", scratch_.write("pair.txt", short_text.substr(0, 20))),
       {"(training) has 19 tokens"}},
  });
  EXPECT_THAT(run_program({"train"}).messages, ::testing::HasSubstr("--data is missing"));
}

TEST_F(TrainRefusalTest, FilesOfTokens) {
  const std::string words(400, 'a');  // 200 tokens of value 24929
  const std::string shards = scratch_.path("shards");
  std::filesystem::create_directory(shards);
  const std::string hollow = scratch_.path("hollow");
  std::filesystem::create_directory(hollow);
  static_cast<void>(scratch_.write("hollow/1.bin", ""));
  const std::string raw = scratch_.write("raw.bin", words);
  expect_refusals({
      {{"--data", raw}, {raw + ": token 0 is 24929; the model has the ids 0 to 255; give a new model --vocabulary"}},
      {split("--data {} --vocabulary 24929", raw), {"the model has the ids 0 to 24928"}},
      {split("--data {} --model bert-tiny --vocabulary 30000", raw),
       {"bert-tiny", "needs the ids of [CLS], [SEP] and [MASK]"}},
      {{"--data", scratch_.write("odd.bin", "abc")}, {"odd.bin: has 3 bytes, so it cannot hold 16-bit tokens"}},
      {{"--data", scratch_.write("alone.idx", "MMIDIDX")}, {"the file of its tokens, ", "alone.bin, does not exist"}},
      {{"--data", shards}, {"the folder", "has neither .bin nor .txt files"}},
      {{"--data", hollow}, {"1.bin: it is empty"}},
      {{"--data", "0.7:" + data_, "0.3:missing.txt"}, {"missing.txt", "No such file"}},
      {{"--data", "0.7:" + data_ + " 0:" + data_}, {"0 is not a weight of a mixture; expected a number above 0"}},
      {split("--data {} --validation 1.5", data_), {"--validation 1.5: expected a share", "or a file"}},
      {{"--data", scratch_.write("book.txt.gz", "\x1F\x8B\x08\x08")},
       {"book.txt.gz: is a gzip archive; unpack it: gunzip -k"}},
      {{"--data", scratch_.write("book.jsonl", "{\"text\": \"a\"}\n")},
       {"book.jsonl: is JSON with an object per line", "make tokens of it: chimera tokenize"}},
      {{"--validation", scratch_.write("wide.txt", std::string("\xFF\xFEh\0", 4))},
       {"wide.txt: is UTF-16; make UTF-8 of it: iconv"}},
      {"--validation missing.txt", {"missing.txt", "No such file"}},
      {"--validate-every 1 --validate-batches 0", {"--validate-batches must be 1 to"}},
      {"--end-of-document -5", {"--end-of-document must be 0 to"}},
      {"--documents split --model bert-tiny", {"--documents split", "bert-tiny", "pairs of texts"}},
  });
}

TEST_F(TrainRefusalTest, DataGivenTwiceOrWithoutWeights) {
  const std::string other = scratch_.write("other.txt", sample_text());
  expect_refusals({
      {split("--data {} --data {}", data_, other), {"--data: is given twice", data_, other, "a mixture such as"}},
      {split("--validation {} --validation {}", data_, other), {"--validation: is given twice"}},
      {{"--data", data_, other}, {"--data: 2 words without weights", "a mixture such as"}},
  });
}

TEST_F(TrainRefusalTest, DocumentsWithoutBoundaries) {
  const std::string raw = scratch_.write("raw.bin", std::string(4000, '\1'));  // 2,000 tokens of value 257
  expect_refusals({
      {"--documents split", {"--documents split: ", "a text file is one document"}},
      {split("--documents split --data {} --vocabulary 300", raw),
       {"--documents split: " + raw, "no token of the vocabulary is known to separate", "--end-of-document"}},
      {split("--documents split --data {} --vocabulary 300 --end-of-document 300", raw),
       {"no token of the vocabulary", "--end-of-document 300 is not below its size, 300"}},
      {"--end-of-document 1", {"--end-of-document is for --documents split"}},
      {"--end-of-document 1 --documents split", {"is for raw and llm.c tokens"}},
  });
}

TEST_F(TrainRefusalTest, Slices) {
  const Words sliced = "--schedule 1f1b --slices 4";
  expect_refusals({
      {sliced + "--model bert-tiny", {"--slices 4: each token of model bert-tiny attends to all others"}},
      {sliced + "--slice-lengths 16,8", {"--slice-lengths 16,8: must be 4 positive numbers", "32"}},
      {sliced + "--slice-lengths 8,8,8,7.5", {"--slice-lengths 8,8,8,7.5: must be whole numbers"}},
      {"--schedule 1f1b --slices 33", {"--slices 33: a sequence has only 32 tokens"}},
      {"--schedule 1f1b --slice-lengths 16,16", {"--slice-lengths is for --slices"}},
      {"--schedule pipedream --slices 4", {"--slices", "pipedream"}},
  });
}

TEST_F(TrainRefusalTest, Offloading) {
  expect_refusals({
      {"--offload ful", {"unknown --offload 'ful'; did you mean 'full'?"}},
      {"--offload 99", {"--offload 99: expected none, full, auto, or stages of 0 to"}},
      {"--offload auto", {"--offload auto needs --memory: the GiB that a worker has"}},
      {"--offload auto --memory 0.00001", {"even if all stages offload their activations"}},
      {"--offload auto --recompute auto --memory 4", {"give only one of them"}},
  });
}

TEST_F(TrainRefusalTest, FlagsWithoutEffect) {
  expect_refusals({
      {"--validate-batches 2", {"--validate-batches is for --validate-every"}},
      {"--force-bfloat16", {"--force-bfloat16 is for --dtype bfloat16"}},
      {"--interface lo", {"--interface is for ranks that torchrun"}},
      {"--rendezvous-seconds 9", {"--rendezvous-seconds is for ranks that torchrun"}},
      {"--schedule none --chunks 2", {"--chunks does not apply to --schedule none"}},
  });
}

TEST_F(TrainRefusalTest, RunsThatDoNotFit) {
  expect_refusals({
      {"--memory 0.00001", {"DOES NOT FIT: a rank needs", "and has 10.49 KiB (--memory)"}},
      {"--memory 0.00001 --recover twin", {"DOES NOT FIT: a rank needs"}},
      {"--micro-batch-size 10000000", {"DOES NOT FIT: the 4 ranks on this machine need", "--no-memory-check"}},
  });
  expect_refusals({{"--hidden 1048576", {"need 1536 TiB, and it"}},
                   {"--hidden 1048576 --checkpoint run", {"need 2112 TiB, and it"}}});  // A copy for saves
  EXPECT_EQ(run_program(command("--memory 0.00001 --no-memory-check")).exit_code, 0);
  scratch_.write("metrics.jsonl", "the last run\n");
}

TEST_F(TrainRefusalTest, MiniBatches) {
  expect_refusals({
      {"--mini-batch 30", {"--mini-batch 30: must be a multiple of --data-parallel 1 times --micro-batch-size 4"}},
      {"--mini-batch 32 --micro-batches 4", {"--mini-batch 32: 4 micro-batches times", "are 16"}},
  });
}

TEST_F(TrainRefusalTest, Tokenizers) {
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int i = 0; i < 295; ++i) words += "word" + std::to_string(i) + "\n";
  const std::string tokenizer = scratch_.write("vocab.txt", words);
  const std::string broken = scratch_.write("broken.txt", "abc\xFF def");
  expect_refusals({
      {"--tokenizer missing.json", {"the tokenizer missing.json does not exist", "`chimera tokenizer train`"}},
      {{"--tokenizer", tokenizer},
       {"vocab.txt has 300 tokens", "a vocabulary of 256", "for a new model, --vocabulary 300"}},
      {split("--tokenizer {} --vocabulary 300 --data {}", tokenizer, broken),
       {"broken.txt: byte 3 is not valid UTF-8"}},
      {split("--tokenizer {} --vocabulary 300 --data {}", tokenizer, scratch_.write("blank.txt", " ")),
       {"blank.txt: has no tokens under this tokenizer"}},
  });
}

TEST_F(TrainRefusalTest, Shapes) {
  expect_refusals({
      {"--stages 3", {"--stages must be even, not 3"}},
      {"--stages 6", {"cannot cut 4 layers into 6 stages"}},
      {"--stages 5 --schedule gpipe", {"cannot cut 4 layers into 5 stages"}},
      {"--partition 2,2", {"--partition 2,2: layers for 2 stages", "cuts the model into 4"}},
      {"--partition 2,1,1,1", {"--partition 2,1,1,1", "more layers than the 4"}},
      {"--partition 4,x", {"--partition '4,x' is neither auto, even, balanced nor"}},
      {"--partition balance", {"unknown --partition 'balance'", "did you mean 'balanced'?"}},
      {"--pipelines 3", {"--pipelines must be twice a divisor", "2, 4; not 3"}},
      {"--pipelines 2 --schedule 1f1b", {"--pipelines does not apply to 1f1b"}},
      {"--scale halving --micro-batch-size 3", {"--micro-batch-size 3", "multiple of 2"}},
      {"--sequence 2000", {"--sequence 2000 is longer than the 1024 positions"}},
      {"--model bert-tiny --sequence 7", {"a sequence of 7 tokens; expected 8"}},
      {"--vocabulary 255", {"vocabulary of 255", "need 256"}},
      {"--model bert-tiny --vocabulary 259", {"vocabulary of 259", "need 260"}},
      {"--heads 5", {"5 heads do not divide the hidden size 64"}},
      {"--hidden 1000000", {"DOES NOT FIT: the 4 ranks on this machine need", "GiB"}},
      {"--reduction-blocks 4", {"--reduction-blocks is for --reduction canonical"}},
      {"--reduction canonical --reduction-blocks 1", {"--reduction-blocks 1: 4 micro-batches", "use 2, 4"}},
      {"--reduction canonical --micro-batches 5", {"--reduction-blocks 1 (the default)", "use 5"}},
      {"--micro-batch-size 1000000000", {"more than any machine holds"}},
      {"--schedule gpipe --layers 2000 --stages 2000", {"at most 1024 ranks run on one machine"}},
  });
}

TEST_F(TrainRefusalTest, MoreRanksThanCoresCanServe) {
  cpu_set_t all;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(all), &all), 0);
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);  // The program inherits it
  expect_refusals({{"--schedule gpipe --layers 17 --stages 17 --micro-batches 1",
                    {"17 ranks on a machine with 1 core: more than 16 a core", "--no-memory-check"}}});
  ASSERT_EQ(::sched_setaffinity(0, sizeof(all), &all), 0);
}

TEST_F(TrainRefusalTest, AsynchronousSchedules) {
  const auto with = [](const Words& flags) { return "--schedule pipedream --stages 2" + flags; };
  expect_refusals({
      {with("--reduction canonical"), {"--reduction canonical", "pipedream is asynchronous"}},
      {with("--sync post"), {"--sync", "pipedream is asynchronous", "leave the flag out"}},
      {with("--tied true"), {"--tied true", "pipedream is asynchronous", "use --tied false"}},
      {with("--steps 1000000000 --micro-batches 4"), {"--steps 1000000000", "at most 536870911 steps"}},
      {"--schedule pipedream-2bw --stages 4 --micro-batches 3", {"must be at least --stages = 4"}},
  });
}

TEST_F(TrainRefusalTest, Names) {
  expect_refusals({
      {"--schedule chimra", {"unknown schedule 'chimra'", "did you mean 'chimera'?"}},
      {"--from meta-llama/Llama-3.1-8B",
       {"is not a folder; download it with `hf download meta-llama/Llama-3.1-8B --local-dir Llama-3.1-8B`"}},
      {"--from gpt2", {"gpt2: is not a folder; download it with `hf download gpt2 --local-dir gpt2`"}},
      {"--recover restart", {"--recover restart continues from a checkpoint; give --checkpoint too"}},
      {"--model gpt2-tyni", {"unknown model 'gpt2-tyni'", "did you mean 'gpt2-tiny'?"}},
      {"--model missing.toml", {"missing.toml", "No such file"}},
      {{"--model", scratch_.write("bad.toml", "family = \"gpt\"\n")}, {"bad.toml: family", "did you mean 'gpt2'?"}},
      {"--dtype float16", {"--dtype 'float16'", "did you mean 'bfloat16'?"}},
      {"--dtype float31", {"--dtype 'float31'", "did you mean 'float32'?"}},
      {"--optimizer adam", {"--optimizer 'adam'", "did you mean 'adamw'?"}},
      {"--optimizer lam", {"--optimizer 'lam'", "did you mean 'lamb'?"}},
      {"--learning-rate-shape cosin", {"--learning-rate-shape 'cosin'", "did you mean 'cosine'?"}},
      {"--decay embeddings", {"--decay 'embeddings'", "did you mean 'no-embeddings'?"}},
      {"--transport thread", {"--transport 'thread'", "did you mean 'threads'?"}},
      {"--recompute auto", {"--recompute auto needs --memory"}},
      {"--tied no", {"--tied 'no'"}},
      {"--step 3", {"unknown flag '--step'", "did you mean '--steps'?"}},
      {"--elastic 2", {"unknown flag '--elastic'"}},
      {"text.txt", {"unexpected argument 'text.txt'"}},
  });
}

struct CountFlag {
  std::string name;
  bool may_be_zero;
};

const std::vector<CountFlag> kCounts = {
    {"stages", false},   {"micro-batches", false}, {"pipelines", false},     {"micro-batch-size", false},
    {"sequence", false}, {"steps", false},         {"seed", true},           {"warmup", true},
    {"cooldown", true},  {"threads", true},        {"validate-every", true}, {"layers", false},
    {"hidden", false},   {"heads", false},         {"vocabulary", false}};

TEST_F(TrainRefusalTest, InvalidCounts) {
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    const std::string flag = "--" + kCounts[i].name;
    const std::string value = kNoNumbers[i % kNoNumbers.size()];
    expect_refusals({{{flag, value}, {flag + ": '" + value + "' is not a whole number"}}});
  }
}

TEST_F(TrainRefusalTest, CountsTooSmall) {
  for (const auto& [name, may_be_zero] : kCounts) {
    expect_refusals({{{"--" + name, "-1"}, {name}}});
    if (!may_be_zero) expect_refusals({{{"--" + name, "0"}, {name}}});
  }
}

TEST_F(TrainRefusalTest, CountsTooLarge) {
  for (const auto& [name, may_be_zero] : kCounts) {
    if (name == "seed") continue;  // any value is valid
    expect_refusals({{{"--" + name, "1000000000000"}, {"1000000000000"}}});
  }
  expect_refusals({{"--threads 4096", {"--threads must be 0 to"}}});
}

TEST_F(TrainRefusalTest, OtherNumbers) {
  for (const std::string& flag :
       Words("--learning-rate --min-learning-rate --beta1 --weight-decay --clip --hang-seconds")) {
    expect_refusals({{{flag, "-1"}, {flag + ": '-1' is not a number of at least 0"}}});
  }
  for (const char* value : {"", "nan", "inf", "1e400", "some"})
    expect_refusals({{{"--clip", value}, {"--clip: '" + std::string(value) + "' is not a number"}}});
  expect_refusals({{"--learning-rate 0", {"--learning-rate must be above 0"}},
                   {"--min-learning-rate 0.1", {"--min-learning-rate must be 0 to the learning rate, 0.001"}},
                   {"--cooldown 3", {"--cooldown is for --learning-rate-shape wsd"}},
                   {"--cooldown-shape sqrt", {"--cooldown-shape is for --learning-rate-shape wsd"}},
                   {"--learning-rate-shape wsd --cooldown 99 --warmup 2",
                    {"--cooldown: 99 steps of it and 2 of warm-up are more than the run's"}},
                   {"--learning-rate-shape constant --min-learning-rate 0",
                    {"--min-learning-rate has no effect on a constant learning rate"}},
                   {"--warmup 1000000", {"--warmup: 1000000 steps are more than the run's"}},
                   {"--beta1 1", {"--beta1 must be at least 0 and below 1, not 1"}},
                   {"--beta2 1.5", {"--beta2 must be at least 0 and below 1, not 1.5"}},
                   {"--epsilon 0", {"--epsilon must be above 0, not 0"}},
                   {"--optimizer sgd --beta1 0.5", {"--beta1 means nothing to --optimizer sgd"}},
                   {"--dropout 1", {"--dropout must be at least 0 and below 1, not 1"}},
                   {"--hang-seconds 1e9", {"--hang-seconds must be 0 to 604800, not 1e+09"}},
                   {"--report-stragglers", {"is now `chimera diagnose`"}},
                   {"--meeting-seconds 9", {"is now `chimera train --rendezvous-seconds`"}}});
}

TEST_F(TrainRefusalTest, MetricsFiles) {
  const std::string model = scratch_.write("mine.toml",
                                           "family = \"gpt2\"\nlayers = 4\nhidden = 64\nheads = 4\nfeed_forward = 256\n"
                                           "vocabulary = 256\npositions = 1024\ntied = false\n");
  const std::string alias = scratch_.path("alias");
  std::filesystem::create_symlink(data_, alias);
  const std::string words = scratch_.write("vocab.txt", "[UNK]\nthe\n");
  const std::string config = scratch_.write("run.toml", "steps = 1\n");
  const std::string profile = scratch_.write("here.json", read_file(testing::source_path("/machines/p100-aries.json")));
  expect_refusals({
      {{"--metrics", ""}, {"--metrics: the name of a file is missing"}},
      {{"--metrics", words + "/metrics.jsonl"}, {"cannot be written", "Not a directory"}},
      {{"--metrics", scratch_.path("")}, {"cannot be written", "Is a directory"}},
      {{"--metrics", data_}, {"the run reads this file"}},
      {{"--metrics", alias}, {"the run reads this file"}},
      {split("--metrics {} --model {}", model, model), {"the run reads this file"}},
      {split("--metrics {} --tokenizer {}", words, words), {"the run reads this file"}},
      {split("--metrics {} --config {}", config, config), {"the run reads this file"}},
      {split("--metrics {} --machine {}", profile, profile), {"the run reads this file"}},
  });
  EXPECT_EQ(read_file(data_), sample_text());
  EXPECT_EQ(read_file(words), "[UNK]\nthe\n");
}

TEST_F(TrainRefusalTest, FilesOfOtherRuns) {
  const Words run = split("train --model gpt2-tiny --data {} --sequence 32 --steps 2", data_);
  const std::string folder = scratch_.path("texts");
  std::filesystem::create_directory(folder);
  static_cast<void>(scratch_.write("texts/a.txt", sample_text()));
  const std::string notes = scratch_.path("notes");
  std::filesystem::create_directory(notes);
  const std::string latest = scratch_.write("notes/latest", "the last notes");
  const std::string report = scratch_.write("report.html", "the last report");
  expect_refusal({run + Words{"--metrics", metrics_}, {"--metrics " + metrics_ + ": exists already", "--overwrite"}});
  expect_refusal({run + Words{"--report", report}, {"--report " + report + ": exists already", "--overwrite"}});
  expect_refusals({
      {{"--data", folder, "--metrics", folder + "/b.txt"}, {"is in the folder " + folder, "give another folder"}},
      {{"--flight-record", folder}, {"--flight-record " + folder + ": has a.txt, which is no flight record"}},
      {{"--checkpoint", notes}, {"--checkpoint " + notes + ": " + latest + " does not name a checkpoint"}},
  });
  EXPECT_EQ(read_file(metrics_), "the last run\n");
  EXPECT_EQ(read_file(report), "the last report");
}

TEST_F(TrainRefusalTest, ObservationFiles) {
  const std::string trace = scratch_.write("trace.json", "the last trace");
  expect_refusals({
      {{"--trace", ""}, {"--trace: the name of a file is missing"}},
      {{"--trace", data_}, {"--trace", "the run reads this file"}},
      {{"--trace", metrics_}, {"--trace", "--metrics writes this file"}},
      {split("--op-times {} --timeline {}", scratch_.path("new"), scratch_.path("new")),
       {"--timeline", "--op-times writes this file"}},
      {{"--op-times", trace + "/times.json"}, {"--op-times", "cannot be written", "Not a directory"}},
      {{"--timeline", scratch_.path("")}, {"--timeline", "cannot be written", "Is a directory"}},
      {split("--trace {} --stages 3", trace), {"--stages must be even"}},
  });
  EXPECT_EQ(read_file(trace), "the last trace");
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("new")));
  EXPECT_FALSE(std::filesystem::exists(trace + ".unfinished"));
}

TEST_F(TrainRefusalTest, FoldersOfEvents) {
  expect_refusals({
      {{"--tensorboard", ""}, {"--tensorboard: the name of a folder is missing"}},
      {{"--tensorboard", data_}, {"--tensorboard " + data_, "is not a folder"}},
      {{"--tensorboard", data_ + "/logs"}, {"--tensorboard " + data_ + "/logs", "is not a folder"}},
      {split("--tensorboard {} --stages 3", scratch_.path("logs")), {"--stages must be even"}},
  });
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("logs")));
}

TEST_F(TrainRefusalTest, LinksToNothing) {
  const std::string link = scratch_.path("link");
  std::filesystem::create_symlink(scratch_.path("missing/run"), link);
  const std::string missing = "is a link to " + scratch_.path("missing/run") + ", which does not exist";
  expect_refusals({{{"--checkpoint", link}, {"--checkpoint " + link, missing}},
                   {{"--tensorboard", link}, {"--tensorboard " + link, missing}},
                   {{"--flight-record", link}, {"--flight-record " + link, missing}},
                   {{"--checkpoint", link + "/"}, {"--checkpoint", missing}},
                   {{"--metrics", link}, {"--metrics " + link, "No such file"}}});
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("missing")));
}

TEST_F(TrainRefusalTest, MakesNoMetricsFile) {
  expect_refusal({command(split("--stages 3 --metrics {}", scratch_.path("new.jsonl"))), {}});
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("new.jsonl")));
}

TEST_F(TrainRefusalTest, UnpipelinedRunsIgnoreAHugeNumberOfStages) {
  const ProgramResult result =
      run_program(command("--schedule none --stages 1000000000000 --micro-batches 1 --threads 1"));
  EXPECT_EQ(result.exit_code, 0) << result.messages;
}

}  // namespace
}  // namespace chimera::testing

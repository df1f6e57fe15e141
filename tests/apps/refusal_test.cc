// Wrong usage of the subcommands that need no training.

#include <gtest/gtest.h>

#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

void expect_refusals(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) expect_refusal(refusal);
}

Words schedule_with(const std::string& flag, const std::string& value) {
  Words words = split("schedule chimera {} {}", flag, value);
  for (const std::string& other : Words("--stages --micro-batches"))
    if (flag != other) words += Words{other, "4"};
  return words;
}

Words simulate_with(const Words& flags) { return "simulate chimera --stages 4 --micro-batches 4" + flags; }

TEST(RefusalTest, UnknownNamesSayTheNearest) {
  expect_refusals({
      {"simulat", {"unknown subcommand 'simulat'", "did you mean 'simulate'?"}},
      {"checkpoint lis run", {"unknown subcommand 'lis'", "did you mean 'list'?"}},
      {"checkpoint convert-all run", {"unknown subcommand 'convert-all'", "list, show, verify, diff"}},
      {"checkpoint", {"`chimera checkpoint` needs a subcommand: list, show, verify, diff"}},
      {"tokenizer trian", {"unknown subcommand 'trian'", "did you mean 'train'?"}},
      {"--hepl", {"unknown flag '--hepl'", "did you mean '--help'?"}},
      {"-x", {"unexpected argument '-x'", "see `chimera --help`"}},
      {"schedule chimra --stages 4 --micro-batches 4", {"unknown schedule 'chimra'", "'chimera'?"}},
      {"schedule chimera --stage 4", {"unknown flag '--stage'", "did you mean '--stages'?"}},
      {"schedule chimera --stages 4 --micro-batches 4 --format jsno", {"'jsno'", "'json'?"}},
      {"check schedule.json --stages 4", {"schedule.json has a shape already"}},
      {"check chimra --stages 4 --micro-batches 4", {"unknown schedule 'chimra'", "'chimera'?"}},
      {"model bert-46", {"unknown model 'bert-46'", "did you mean 'bert-48'?"}},
      {"model meta-llama/Llama-3.1-8B",
       {"neither a folder nor a preset", "`hf download meta-llama/Llama-3.1-8B --local-dir Llama-3.1-8B`"}},
      {"model ./meta-llama/Llama-3.1-8B", {"unknown model './meta-llama/Llama-3.1-8B'"}},
      {"model gpt2 --tied maybe", {"--tied 'maybe'", "true, false"}},
  });
}

TEST(RefusalTest, NumbersOfAShapeAreWhole) {
  expect_refusals({
      {"schedule 1f1b --stages 4.5 --micro-batches 4", {"--stages: '4.5' is not a whole number"}},
      {"simulate 1f1b --stages 4 --micro-batches 2D", {"--micro-batches: '2D' is not a whole number"}},
      {"simulate chimera --stages 4 --micro-batches 4 --chunks 1.5", {"--chunks: '1.5' is not a whole number"}},
  });
}

TEST(RefusalTest, FlagsOfOtherProgramsSuggestOurs) {
  expect_refusals({
      {"plan --batch-size 8", {"unknown flag '--batch-size'", "'--micro-batch-size' or '--mini-batch'?"}},
      {"plan --gpus 8", {"did you mean '--workers' or '--stages' or '--data-parallel'?"}},
      {"plan --dp=2", {"unknown flag '--dp'", "did you mean '--data-parallel'?"}},
      {"simulate chimera --pp 4", {"did you mean '--stages'?"}},
      {"plan --seq_length 4096", {"unknown flag '--seq_length'", "did you mean '--sequence'?"}},
      {"plan --bogusflagname", {"unknown flag '--bogusflagname'; see --help-all"}},
      {"help trian", {"did you mean 'train'?"}},
  });
}

TEST(RefusalTest, MissingAndSurplusWords) {
  expect_refusals({
      {"schedule", {"NAME is required", "chimera schedule --help"}},
      {"schedule chimera --micro-batches 4", {"--stages is missing"}},
      {"schedule chimera --stages 4", {"--micro-batches is missing"}},
      {"schedule chimera gpipe --stages 4 --micro-batches 4", {"unexpected argument 'gpipe'"}},
      {"schedule chimera --stages 4 --stages 8 --micro-batches 4", {"--stages", "received 2"}},
      {"schedule chimera --stages 4 --micro-batches", {"--micro-batches"}},
      {"check", {"NAME is required"}},
      {"simulate", {"give the NAME of a schedule, or --file FILE"}},
      {"simulate chimera --file schedule.json", {"give the NAME of a schedule, or --file FILE"}},
      {"model", {"NAME is required"}},
  });
}

TEST(RefusalTest, FlagsThatDoNotApply) {
  expect_refusals({
      {"schedule gpipe --stages 4 --micro-batches 4 --pipelines 2", {"--pipelines does not apply to gpipe"}},
      {"simulate --file schedule.json --stages 4", {"schedule.json has a shape already", "--stages"}},
      {simulate_with("--input-gradient 1"), {"--input-gradient and --weight-gradient come together"}},
      {simulate_with("--backward 2 --input-gradient 1 --weight-gradient 1"), {"not both"}},
      {simulate_with("--data-parallel 2"), {"--data-parallel changes all-reduces and shared cores alone"}},
  });
}

TEST(RefusalTest, NumbersAndSizesBeyondAnyMachine) {
  expect_refusals({
      {simulate_with("--forward 1e308"), {"--forward: 1e308 is too large; give at most 1e+100"}},
      {"model gpt2 --micro-batch-size 9223372036854775807", {"--micro-batch-size must be 1 to 1000000000"}},
      {"model gpt2 --micro-batch-size 0", {"--micro-batch-size must be 1 to 1000000000"}},
      {"model gpt2 --sequence 9223372036854775807", {"--sequence must be 1 to 1000000000"}},
      {"model gpt2 --schedule 1f1b --micro-batches -1", {"--micro-batches must be at least 1"}},
  });
}

TEST(RefusalTest, EndlessFiles) {
  expect_refusals({
      {simulate_with("--costs /dev/zero"), {"/dev/zero: is longer than 67108864 bytes"}},
      {"plan --workers 4 --mini-batch 8 --machine /dev/zero", {"/dev/zero: is longer than 67108864 bytes"}},
  });
}

TEST(RefusalTest, ShapesThatDoNotFit) {
  expect_refusals({
      {schedule_with("--stages", "3"),
       {"--stages must be even, not 3", "3 stages and 4 micro-batches suit gpipe, 1f1b, "}},
      {schedule_with("--pipelines", "3"), {"--pipelines must be twice a divisor of D/2 = 2: 2, 4; not 3"}},
      {schedule_with("--pipelines", "8"), {"2, 4; not 8"}},
      {"schedule gpipe --stages 100000 --micro-batches 100000", {"more than 100000000 ops"}},
      {"model gpt2 --stages 13", {"cannot cut 12 layers into 13 stages"}},
      {"model gpt2 --heads 7", {"7 heads do not divide the hidden size 768"}},
      {"model gpt2 --layers 1000000 --hidden 1200000", {"parameters are more than"}},
  });
}

TEST(RefusalTest, ImpossibleNumbers) {
  const std::vector<Refusal> commands = {
      {"schedule gpipe --micro-batches 4 --stages", {"stages"}},
      {"schedule gpipe --stages 4 --micro-batches", {"micro-batches"}},
      {"schedule chimera --stages 4 --micro-batches 4 --pipelines", {"--pipelines"}},
      {"model gpt2 --stages", {"stages"}},
      {"model gpt2 --layers", {"layers"}},
      {"model gpt2 --hidden", {"hidden"}},
      {"model gpt2 --heads", {"heads"}},
      {"model gpt2 --vocabulary", {"vocabulary"}},
  };
  for (std::size_t i = 0; i < commands.size(); ++i) {
    for (const std::string& value :
         {std::string("0"), std::string("-4"), std::string("1000000000000"), kNoNumbers[i % kNoNumbers.size()]}) {
      Words with_value = commands[i].arguments;
      with_value.push_back(value);
      expect_refusal({with_value, commands[i].words});
    }
  }
}

TEST(RefusalTest, ImpossibleTimes) {
  for (const std::string& flag : Words("--forward --backward --input-gradient --weight-gradient --latency"))
    expect_refusal({simulate_with({flag, "-0.5"}), {flag + ": '-0.5' is not a number of at least 0"}});
  for (const char* value : {"", "nan", "inf", "1e400", "soon"})
    expect_refusal({simulate_with({"--forward", value}), {"--forward: '" + std::string(value) + "' is not a number"}});
  expect_refusal({simulate_with("--forward 1e308 --backward 1e308"), {"--forward: 1e308 is too large"}});
}

TEST(RefusalTest, FilesThatCannotBeReadOrWritten) {
  const Scratch scratch;
  const std::string directory = scratch.path("");
  const std::string loop = scratch.path("loop");
  std::filesystem::create_symlink(loop, loop);
  expect_refusals({
      {"check missing.json", {"missing.json: cannot be read", "No such file"}},
      {{"check", directory}, {"is a directory"}},
      {{"check", loop}, {"cannot be read", "symbolic links"}},
      {{"check", scratch.write("empty.json", "")}, {"is empty; expected a schedule in JSON or CSV"}},
      {{"check", "two\nlines.json"}, {"two lines.json: cannot be read"}},
      {{"simulate", "--file", ""}, {"--file: the name of a file is missing"}},
      {schedule_with("--output", directory), {"cannot be written", "Is a directory"}},
      {schedule_with("--output", scratch.write("file", "") + "/picture.txt"), {"cannot be written", "Not a directory"}},
      {schedule_with("--output", ""), {"--output: the name of a file is missing"}},
  });
}

TEST(RefusalTest, ModelFiles) {
  const Scratch scratch;
  const std::string good =
      "family = \"gpt2\"\nlayers = 4\nhidden = 64\nheads = 4\nfeed_forward = 256\nvocabulary = 256\n";
  const auto file = [&](const std::string& name, const std::string& text) {
    return scratch.write(name + ".toml", text);
  };
  expect_refusals({
      {"model missing.toml", {"missing.toml", "No such file"}},
      {{"model", file("syntax", "layers = = 4\n")}, {"syntax.toml:1:"}},
      {{"model", file("absent", good + "tied = false\n")}, {"field 'positions' is missing"}},
      {{"model", file("typo", good + "position = 9\n")}, {"typo.toml", "'position'", "'positions'?"}},
      {{"model", file("type", good + "positions = \"long\"\ntied = false\n")},
       {"type.toml: positions: expected a number, found string"}},
      {{"model", file("range", good + "positions = 0\ntied = false\n")}, {"range.toml", "positions is 0"}},
      {{"model", file("empty", "")}, {"field 'family' is missing"}},
  });
}

TEST(RefusalTest, AnInvalidFaultPlan) {
  for (const auto& [plan, words] :
       std::vector<std::pair<std::string, std::string>>{{"kill", "expected ACTION@POINT"},
                                                        {"kill@foward", "did you mean 'forward'?"},
                                                        {"throw@step:one", "'one' is not a number"},
                                                        {"slow*2@forward", "slow*FACTOR@step"},
                                                        {"slow*0.5@step", "at least 1"},
                                                        {"delay@link:0-1", "delay*SECONDS@link:RANK-RANK"},
                                                        {"delay*0@link:0-1", "delay*SECONDS@link:RANK-RANK"},
                                                        {"delay*0.1@step:0", "delay*SECONDS@link:RANK-RANK"},
                                                        {"kill@link:0-1", "delay*SECONDS@link:RANK-RANK"},
                                                        {"delay*0.1@link:1", "'' is not a number"},
                                                        {"slow*2@step:1:4-x", "'x' is not a number"},
                                                        {"nan@step", "nan needs a tensor"}}) {
    const ProgramResult result = ProgramRun({"schedules"}, {.environment = {"CHIMERA_FAULT=" + plan}}).wait();
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.messages.find(words), std::string::npos) << result.messages;
  }
}

/// The program has the name of a schedule, which must not look like a repeated prefix.
TEST(RefusalTest, NamesTheScheduleAsASchedule) {
  for (const Refusal& refusal : std::vector<Refusal>{
           {"schedule chimera --stages 3 --micro-batches 3", {"chimera: schedule chimera: --stages must"}},
           {"schedule chimera", {"chimera: schedule chimera: --stages is missing"}},
           {"simulate chimera --stages 2", {"chimera: schedule chimera: --micro-batches is missing"}}}) {
    expect_refusal(refusal);
  }
}

}  // namespace
}  // namespace chimera::testing

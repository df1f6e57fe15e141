// `chimera demo` is a script of explanations and commands of this very program, which it runs as a user would. So a
// demo cannot show anything that a user cannot repeat, and it fails if a command ends otherwise than the text says.
// Figures in the texts are those of commands that give the same output on each machine; measured ones are filled in.

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <sstream>

#include "commands.h"
#include "core/cgroup.h"
#include "core/files.h"
#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "core/shell_words.h"
#include "flags/values.h"
#include "help.h"
#include "program.h"

namespace chimera::apps {
namespace {

using Words = std::vector<std::string>;

void print_title(const std::string& text) { std::cout << "\n== " << text << "\n\n" << std::flush; }

void print_paragraph(const std::string& text) {
  // Fixed, so that the output of a demo does not depend on the terminal.
  constexpr std::size_t kColumns = 96;
  std::cout << paragraph(text, kColumns) << "\n" << std::flush;
}

/// Runs commands of this program on files of its folder.
class DemoStage {
 public:
  /// An empty `folder` stands for a temporary one. `pauses` waits for Enter before each command.
  DemoStage(const std::string& folder, bool pauses) : folder_(folder), pauses_(pauses) {
    if (folder.empty()) folder_ = temporary_.emplace().path();
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error) reject("--folder {}: cannot be made ({})", folder_.string(), error.message());
  }
  DemoStage& operator=(DemoStage&&) = delete;

  /// Shows the command and its output. Throws Error if its exit code is not `expected`.
  void run(const Words& words, int expected = 0) {
    std::istringstream lines(output_of(words, expected));
    // Indented, to tell the output of commands from the text of the demo.
    for (std::string line; std::getline(lines, line);) std::cout << (line.empty() ? "" : "  ") << line << "\n";
    std::cout << "\n" << std::flush;
  }

  /// Shows the command and returns its output. Throws as run() does.
  std::string output_of(const Words& words, int expected = 0) {
    if (pauses_) {
      std::cout << "[Enter: " << shell_command(words) << "] " << std::flush;
      std::string answer;
      if (!std::getline(std::cin, answer)) pauses_ = false;  // the terminal has gone
    }
    std::cout << "$ " << shell_command(words) << "\n" << std::flush;
    const CommandResult result = run_this_program(words);
    if (result.exit_code == expected) return result.output;
    throw Error(fmt::format("`{}` ended with {}; the demo ends here", shell_command(words), result.exit_code));
  }

  [[nodiscard]] std::string file(const std::string& name) const { return (folder_ / name).string(); }

  /// Returns a text to train on: the help of some commands, so that a demo needs no download.
  [[nodiscard]] std::string text() const {
    const std::string path = file("text.txt");
    if (std::filesystem::exists(path)) return path;
    // Written once, so that all demos of a folder train on the same samples.
    std::string all;
    for (const char* command : {"schedule", "check", "simulate", "search", "model", "plan", "tokenize", "train"})
      all += run_this_program({command, "--help-all"}).output;
    write_whole(path, all);
    return path;
  }

 private:
  std::filesystem::path folder_;
  std::optional<TemporaryFolder> temporary_;  // set if no folder is given
  bool pauses_;
};

/// Prints a bar; `share` is its length relative to the longest one.
void print_bar(const std::string& name, double share, const std::string& label) {
  constexpr double kLongest = 40;
  std::string blocks;
  for (int i = 0; i < std::lround(kLongest * share); ++i) blocks += "█";
  std::cout << fmt::format("  {:<7}  {} {}\n", name, blocks, label);
}

void show_schedule(DemoStage& stage) {
  print_title("Schedules: who computes what, and who waits");
  print_paragraph(
      "A model too large for one device is cut into stages, one a worker. A mini-batch is cut into micro-batches that "
      "flow through the stages. GPipe runs all forwards, then all backwards. Rows are workers, columns are time, `1F2` "
      "is the forward of micro-batch 2 on stage 1, and a dot is a worker that waits: a bubble. A backward takes twice "
      "as long as a forward.");
  stage.run({"simulate", "gpipe", "--stages", "4", "--micro-batches", "4"});
  print_paragraph(
      "43 % of the time is lost. Chimera runs a second pipeline through the same workers in the opposite direction, so "
      "that each fills the other's bubbles. The model is held twice; gradients stay those of plain mini-batch SGD, as "
      "both copies are summed before the one update.");
  stage.run({"simulate", "chimera", "--stages", "4", "--micro-batches", "4"});
  print_paragraph(
      "16 instead of 21 units of time, and no worker holds more activations than before. Schedules that split the "
      "backward into input gradients and weight gradients go further. All of them on eight workers:");
  stage.run({"sweep", "--schedules", "gpipe,1f1b,zb-h1,chimera,chimera-zb", "--stages", "8", "--micro-batches", "8"});
  print_paragraph(
      "A schedule is a file, and yours can be one. The checker proves that its program cannot deadlock, or shows who "
      "waits for whom. This one is PyTorch's CSV with two ops in the wrong order:");
  // Worker 1 has its first backward before the forward that this backward needs.
  const std::string broken = stage.file("broken.csv");
  write_whole(broken, "0F0,0B0,0F1,0B1\n1B0,1F0,1F1,1B1\n");
  stage.run({"check", broken}, 1);
  print_paragraph(
      "More: `chimera schedules` lists all of them; `chimera playground --output page.html` lets you edit them.");
}

void show_model(DemoStage& stage) {
  print_title("Models: what each stage holds and costs");
  print_paragraph(
      "Nothing is allocated here: sizes alone say what a stage has to hold. BERT with 48 layers, as the Chimera paper "
      "trains it, cut into four stages:");
  stage.run({"model", "bert-48", "--stages", "4", "--micro-batch-size", "8"});
  print_paragraph(
      "The bars hold one micro-batch's activations. A schedule holds several at once, and Chimera two stages a worker. "
      "What its workers come to:");
  stage.run({"model", "bert-48", "--stages", "4", "--micro-batch-size", "8", "--schedule", "chimera", "--micro-batches",
             "4"});
  print_paragraph(
      "Embedding and head make the first and the last stage heavier. A balanced cut gives these fewer blocks. More: "
      "`chimera model --help`, docs/models.md.");
  stage.run({"model", "gpt2", "--stages", "4", "--partition", "4,3,3,2"});
}

void show_plan(DemoStage& stage) {
  print_title("Plans: which depth, width and schedule for this model and machine?");
  print_paragraph(
      "P workers can be W pipelines of depth D. Deeper means smaller stages and more bubbles; wider means larger sums "
      "of gradients. The planner simulates every combination at the measured speed of a machine, drops what does not "
      "fit, and ranks the rest. This machine is 32 nodes with a P100 each, as in the paper:");
  const std::string machine = "p100-aries";
  stage.run({"plan", "--model", "bert-48", "--workers", "32", "--mini-batch", "512", "--memory", "16", "--machine",
             machine, "--top", "6"});
  print_paragraph(
      "The paper chooses by a closed formula, among Chimera's configurations alone. There W = 8, D = 4 was best. With "
      "this profile, fitted to all of the paper's figures, the formula prefers W = 4, D = 8, within its error:");
  stage.run({"plan", "--model", "bert-48", "--workers", "32", "--mini-batch", "512", "--memory", "16", "--machine",
             machine, "--rule", "paper", "--schedules", "chimera", "--top", "4"});
  print_paragraph(
      "For the machine in front of you, `chimera profile --output here.json` measures a profile in a minute, and "
      "`chimera train --plan auto --machine here.json` trains what the planner chooses.");
}

Words training(DemoStage& stage, const Words& more) {
  Words words = {"train", "--data", stage.text(), "--sequence", "64", "--micro-batch-size", "4", "--seed", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void show_train(DemoStage& stage) {
  print_title("Training: the same gradients, through a pipeline");
  print_paragraph(
      "A small GPT learns this program's own --help-all, byte by byte, on four processes with the Chimera schedule. "
      "Each process holds one stage of either direction.");
  const std::string pipelined = stage.file("chimera.jsonl");
  stage.run(
      training(stage, {"--model", "gpt2-tiny", "--schedule", "chimera", "--stages", "4", "--micro-batches", "4",
                       "--steps", "40", "--overwrite", "--metrics", pipelined, "--report", stage.file("report.html")}));
  print_paragraph("Now without a pipeline: one process, the same samples, the same initial weights.");
  const std::string plain = stage.file("unpipelined.jsonl");
  stage.run(training(stage, {"--model", "gpt2-tiny", "--schedule", "none", "--micro-batches", "4", "--steps", "40",
                             "--overwrite", "--metrics", plain}));
  print_paragraph("Both have learned the same: their losses agree to the rounding of float32.");
  stage.run({"compare", plain, pipelined});
  print_paragraph(
      "`chimera top chimera.jsonl` would have shown the run while it trained, and report.html shows it now. Add "
      "--checkpoint to go on after any end, --export for a folder that transformers load.");
}

struct MeasuredSchedule {
  std::string schedule;
  double measured = 0;   // tokens per second
  double predicted = 0;  // tokens per second
  bool is_disturbed = false;
};

/// Trains with each schedule, and simulates each with the mean times of its own ops. `chimera bench` repeats runs
/// during which other programs used the cores.
std::vector<MeasuredSchedule> measure(DemoStage& stage, const Words& schedules, const std::string& workers) {
  Words words = {"bench", "--rounds", "1", "--retries", "8", "--format", "json"};
  for (const std::string& schedule : schedules) {
    const std::string times = stage.file(schedule + ".json");
    words.insert(words.end(),
                 {"--run", fmt::format("--schedule {} --op-times {} --overwrite", schedule, shell_word(times))});
  }
  words.insert(words.end(), {"--data", stage.text(), "--sequence", "64", "--micro-batch-size", "4", "--seed", "1",
                             "--model", "gpt2-mini", "--stages", workers, "--micro-batches", workers, "--steps", "14"});
  const auto runs = read_json(stage.output_of(words)).at("runs");
  std::vector<MeasuredSchedule> measured;
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const std::string simulated =
        stage.output_of({"simulate", schedules[i], "--stages", workers, "--micro-batches", workers, "--costs",
                         stage.file(schedules[i] + ".json"), "--format", "json"});
    // The only round of --rounds 1.
    const double speed = runs[i].at("tokens_per_second")[0];
    const double seconds = runs[i].at("step_seconds")[0];
    const double tokens = speed * seconds;  // of a step
    // The costs are in seconds, so the makespan is the predicted time of a step.
    measured.push_back({schedules[i], speed, tokens / read_json(simulated).at("makespan").get<double>(),
                        runs[i].at("disturbed_rounds") > 0});
  }
  return measured;
}

void show_performance(DemoStage& stage) {
  constexpr int kFourWorkers = 4;
  const std::string workers = available_cores() >= kFourWorkers ? "4" : "2";
  print_title("Performance: four schedules train the same model, in turn");
  print_paragraph(fmt::format(
      "Every schedule gets {0} workers, {0} micro-batches a step, the same samples and the same initial weights: few "
      "micro-batches, where bubbles hurt most. A run that other programs disturb is repeated. Beside each measured "
      "speed stands what the simulator says of it, fed with the times of that run's ops, messages and sums.",
      workers));
  const auto measured = measure(stage, {"gpipe", "1f1b", "zb-h1", "chimera"}, workers);
  std::cout << "\n";
  double most = 0;
  for (const MeasuredSchedule& one : measured) most = std::max({most, one.measured, one.predicted});
  for (const MeasuredSchedule& one : measured) {
    print_bar(one.schedule, one.measured / most,
              fmt::format("{:.0f} tokens/s measured{}", one.measured, one.is_disturbed ? ", disturbed" : ""));
    print_bar("", one.predicted / most,
              fmt::format("{:.0f} predicted ({:+.1f} %)", one.predicted, 100 * (one.predicted / one.measured - 1)));
  }
  std::cout << "\n" << std::flush;
  if (std::ranges::any_of(measured, &MeasuredSchedule::is_disturbed)) {
    return print_paragraph(
        "Other programs used the cores during some of these runs, also when they were repeated. The speeds therefore "
        "do not say which schedule is faster. Run the demo again when the machine is idle.");
  }
  const auto times = [&](std::size_t other) { return measured.back().measured / measured.at(other).measured; };
  print_paragraph(fmt::format(
      "Chimera trains {:.2f} times as fast as GPipe here, {:.2f} times as fast as 1F1B and {:.2f} times as fast as "
      "ZB-H1, in one short run each. `chimera bench` with --rounds 5 gives medians with quartiles.",
      times(0), times(1), times(2)));
}

struct Demo {
  const char* name;
  const char* description;
  void (*show)(DemoStage& stage);
};
constexpr std::array kDemos = {
    Demo{"schedule", "pipelines, bubbles, and a schedule that gets stuck", show_schedule},
    Demo{"model", "what each stage of a model holds and costs", show_model},
    Demo{"plan", "depth, width and schedule for a model and a machine", show_plan},
    Demo{"train", "the same gradients through a pipeline as without one", show_train},
    Demo{"performance", "four schedules train side by side, predicted beside measured", show_performance}};

struct DemoArguments {
  std::string name;
  std::string folder;
  bool unattended = false;
  [[nodiscard]] bool pauses() const {
    return !unattended && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  }
};

void show(const Demo& demo, const DemoArguments& options) {
  DemoStage stage(options.folder, options.pauses());
  demo.show(stage);
}

void menu(const DemoArguments& options) {
  while (true) {
    std::cout << "\nWhat would you like to see?\n";
    for (std::size_t d = 0; d < kDemos.size(); ++d)
      std::cout << fmt::format("  {}  {:<12} {}\n", d + 1, kDemos[d].name, kDemos[d].description);
    std::cout << "  q  quit\n> " << std::flush;
    std::string answer;
    if (!std::getline(std::cin, answer) || answer == "q") return;
    for (std::size_t d = 0; d < kDemos.size(); ++d)
      if (answer == std::to_string(d + 1) || answer == kDemos[d].name) show(kDemos[d], options);
  }
}

void show_chosen(const DemoArguments& options) {
  // Demos replace each other's files, so the folder must not have others.
  std::error_code unreadable;
  if (path_exists(options.folder) && !std::filesystem::is_empty(options.folder, unreadable))
    reject("--folder {}: exists already; give a new folder", options.folder);
  // A menu needs somebody who chooses. Without a terminal, all demos run.
  if (options.name.empty() && options.pauses()) return menu(options);
  for (const Demo& demo : kDemos)
    if (options.name.empty() || options.name == demo.name) show(demo, options);
}

}  // namespace

void add_demo(CLI::App& program, const Invocation&, int&) {
  const auto description_of = [](const Demo& demo) { return fmt::format("{}: {}", demo.name, demo.description); };
  auto* command =
      program.add_subcommand("demo", "Show the features of Chimera, each in a minute, with its own commands");
  command->footer(
      "Examples:\n"
      "  chimera demo\n"
      "  chimera demo schedule\n"
      "  chimera demo performance --folder kept\n"
      "  chimera demo --unattended > all.txt\n"
      "\nDemos: " +
      fmt::format("{}.", fmt::join(mapped(kDemos, description_of), "; ")) +
      "\n\nWithout DEMO, the command offers a menu; without a terminal or with --unattended, it runs all demos. A demo "
      "prints each command before it runs it. On a terminal it waits for Enter first. `train` and `performance` train "
      "small models on this machine, on the text of --help-all.\n"
      "\nMore: docs/tutorial.md");
  auto options = std::make_shared<DemoArguments>();
  const auto names = mapped(kDemos, [](const Demo& demo) { return std::string(demo.name); });
  add_word(
      *command, "DEMO", names, [options](const std::string& name) { options->name = name; },
      "which demo (default: a menu of all)");
  begin_group(*command, heading::kOutput);
  add_path(*command, "--folder", options->folder,
           "keep the files of the demo in this folder (default: they are removed)", PathKind::Folder);
  command->add_flag("--unattended", options->unattended, "never wait for Enter");
  command->callback([options] { show_chosen(*options); });
}

}  // namespace chimera::apps

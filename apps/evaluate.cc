#include "train/loop/evaluate.h"
#include "core/counted.h"
#include "flags/outputs.h"
#include "flags/values.h"

#include <cmath>
#include <limits>

#include "commands.h"
#include "core/console.h"
#include "core/json.h"
#include "help.h"
#include "progress_line.h"
#include "run_on_model.h"
#include "telemetry/run_history.h"
#include "train/observe/progress_report.h"

namespace chimera::apps {
namespace {

struct EvaluateFlags {
  EvaluationOptions options;
  Format format = Format::Text;
};

std::string progress(const EvaluationProgress& now) {
  const double windows = static_cast<double>(now.windows - now.windows_done);
  const double left = now.seconds / static_cast<double>(now.windows_done) * windows;
  return fmt::format("window {}/{}  loss {:.4f}  {}  ETA {}", now.windows_done, now.windows, now.loss,
                     tokens_per_second(static_cast<double>(now.tokens_done) / now.seconds), duration_text(left));
}

std::string report(const Evaluation& evaluation) {
  return fmt::format("data: {}\nloss {:.6f}, perplexity {:.4f}; mean over {} of {}\n", evaluation.data, evaluation.loss,
                     std::exp(evaluation.loss), counted(evaluation.tokens, "target"),
                     counted(evaluation.windows, "window"));
}

std::string report_json(const Evaluation& evaluation) {
  return json_report({{"loss", evaluation.loss},
                      {"perplexity", std::exp(evaluation.loss)},
                      {"tokens", evaluation.tokens},
                      {"windows", evaluation.windows}});
}

void evaluate_and_print(const EvaluateFlags& flags) {
  ProgressLine line;
  const Evaluation evaluation =
      evaluate(flags.options, [&](const EvaluationProgress& now) { line.show([&] { return progress(now); }); });
  // The result must not follow half a progress line on a terminal.
  line.clear();
  write_output("", flags.format == Format::Json ? report_json(evaluation) : report(evaluation));
  finish_output(kDrainAfterSuccess);
}

int run(EvaluateFlags flags, const Invocation& invocation) {
  constexpr std::int64_t kMany = 1'000'000'000;
  EvaluationOptions& options = flags.options;
  require_between("--sequence", options.sequence, 1, kMany);
  require_between("--micro-batch-size", options.micro_batch_size, 1, kMany);
  require_between("--seed", options.seed, 0, std::numeric_limits<std::int64_t>::max());
  require_between("--threads", options.threads, 0, kMaxThreads);
  const ModelRunOptions ranks{.from = options.from, .threads = options.threads};
  // The folder of a run is resolved to one checkpoint, so that a run that saves meanwhile changes nothing.
  return run_on_model(ranks, invocation, [&flags](const std::string& folder) -> RankFunction {
    flags.options.from = folder;
    return [&flags](RankId, Transport&) { evaluate_and_print(flags); };
  });
}

void add_flags(CLI::App& command, EvaluateFlags& flags) {
  EvaluationOptions& o = flags.options;
  begin_group(command, heading::kModel);
  add_path(command, "--from", o.from,
           "Hugging Face folder (config.json and safetensors), a checkpoint, or a folder of checkpoints (the newest "
           "valid one is used)",
           PathKind::Folder)
      ->required();
  begin_group(command, heading::kData);
  add_data(command, "--data", o.data,
           "text; a file of tokens (Megatron, llm.c or raw); or a folder of such files (its validation shards, if it "
           "has any)")
      ->required();
  add_path(command, "--tokenizer", o.tokenizer,
           "tokenizer.json, vocab.json, vocab.txt, a folder with one of them, or `bytes` (default: the tokenizer of "
           "--from or of its run, or `bytes` for a vocabulary of bytes)");
  add_count(command, "--sequence", o.sequence, "tokens predicted per window (L)")->required();
  add_count(command, "--seed", o.seed, "seed of BERT's sentence pairs and masks (default 1)");
  begin_group(command, heading::kNumbers);
  add_choice(command, "--dtype", o.dtype, "type of computation (default float32)");
  command.add_flag("--force-bfloat16", o.force_bfloat16,
                   "use bfloat16 on CPUs without AVX512-BF16 and AMX, which is very slow");
  begin_group(command, heading::kRunning);
  add_count(command, "--micro-batch-size", o.micro_batch_size,
            "windows computed at a time; affects rounding only (default 8)");
  add_count(command, "--threads", o.threads, "intra-op threads (default: number of cores)");
  add_format(command, flags.format, {Format::Text, Format::Json});
}

}  // namespace

void add_evaluate(CLI::App& program, const Invocation& invocation, int& exit_code) {
  auto* command = program.add_subcommand(kEvaluate.name, kEvaluate.description);
  command->footer(
      "Examples:\n"
      "  chimera evaluate --from path/to/gpt2 --data held_out.txt --sequence 1024\n"
      "  chimera evaluate --from path/to/tuned --data val.bin --sequence 256 --format json\n"
      "  chimera evaluate --from path/to/bytes --data book.txt --tokenizer bytes --sequence 128 --dtype float64\n"
      "  chimera evaluate --from run --data held_out.txt --sequence 128   # the newest checkpoint\n"
      "\nThe tokens are cut into windows of L + 1 tokens that start every L tokens; an incomplete last window is "
      "omitted. The loss is the mean over all targets in nats, and the perplexity is its exponential. BERT uses its "
      "training loss, with masks and pairs fixed by --seed.\n"
      "\nExit codes: 1 the loss is not finite; 2 wrong usage, or model and data do not match.\n"
      "\nMore: docs/inference.md");
  auto flags = std::make_shared<EvaluateFlags>();
  add_flags(*command, *flags);
  command->callback([flags, &invocation, &exit_code] { exit_code = run(*flags, invocation); });
}

}  // namespace chimera::apps

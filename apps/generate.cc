#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "checkpoint/find.h"
#include "commands.h"
#include "core/cores.h"
#include "core/error.h"
#include "core/freed_memory.h"
#include "generate_job.h"
#include "help.h"
#include "launch/local/launcher.h"

namespace chimera::apps {
namespace {

void add_prompts(CLI::App& command, GenerateOptions& options) {
  const auto add = [&](const char* flag, bool is_tokens, const char* type, const char* description) {
    command
        .add_option_function<std::string>(
            flag,
            [&options, is_tokens](const std::string& words) {
              options.prompts.push_back({words, is_tokens});
            },
            description)
        ->type_name(type)
        ->trigger_on_parse();  // once for each, in the order of the command line
  };
  add("--prompt", false, "TEXT", "a text to go on with; may be repeated");
  add("--prompt-ids", true, "N,N", "the same as numbers of tokens; may be repeated");
}

void add_flags(CLI::App& command, GenerateOptions& o) {
  SamplingOptions& sampling = o.continuation.sampling;
  begin_group(command, heading::kModel);
  add_path(
      command, "--from", o.from,
      "Hugging Face folder of a GPT-2 or Llama model: config.json and safetensors; or a checkpoint, or a folder of "
      "these, of which it is the newest good one",
      PathKind::Folder)
      ->required();
  add_path(command, "--tokenizer", o.tokenizer,
           "tokenizer.json, vocab.json or the folder of one (default: that of --from or of its run, else `bytes` where "
           "the vocabulary has 256 tokens)");
  begin_group(command, heading::kText);
  add_prompts(command, o);
  command
      .add_option_function<std::string>(
          "--tokens", [&o](const std::string& text) { o.tokens = parse_count("--tokens", text); },
          "new tokens of each prompt, at most (default 100, or what the model's positions have room for)")
      ->type_name("N");
  command
      .add_option_function<std::string>(
          "--stop", [&o](const std::string& text) { o.continuation.stops.push_back(text); },
          "end before this text, wherever tokens begin and end; may be repeated")
      ->type_name("TEXT")
      ->trigger_on_parse();
  begin_group(command, heading::kSampling);
  add_number(command, "--temperature", sampling.temperature,
             "what scores are divided by before a token is drawn; 0 takes the likeliest one (default 0)");
  add_count(command, "--top-k", sampling.top_k,
            "draw from the K likeliest tokens, and those that equal the last of them; 0: all (default 0)");
  add_number(command, "--top-p", sampling.top_p,
             "draw from the fewest likeliest tokens that have this probability together (default 1)");
  add_count(command, "--seed", sampling.seed, "seed of the draws (default 1)");
  begin_group(command, heading::kRunning);
  add_choice(command, "--dtype", o.dtype, "type that layers compute with (default float32)");
  add_count(command, "--stages", o.stages,
            "D, the processes that the layers are spread over; each reads its own (default 1)");
  add_count(command, "--threads", o.threads, "intra-op threads of a process (default: cores / D, at least 1)");
  begin_group(command, heading::kOutput);
  add_format(command, o.format, {Format::Text, Format::Json});
}

/// Folder of the model: ranks take the checkpoint that their launcher found.
std::string model_folder(const std::string& from, const Invocation& invocation) {
  if (!invocation.rank) return resolved_model_folder(from, available_cores());
  std::ifstream found(invocation.rank->input_path);
  return {std::istreambuf_iterator<char>(found), {}};
}

int run(GenerateOptions options, const Invocation& invocation) {
  options.from = model_folder(options.from, invocation);
  const GenerateJob job = prepare_generate(options);
  if (invocation.rank || options.stages == 1) return run_generate(job, invocation.rank);
  return launch({.ranks = static_cast<int>(options.stages),
                 .arguments = invocation.arguments,
                 .input = options.from,
                 .entry = invocation.entry});
}

}  // namespace

void add_generate(CLI::App& program, const Invocation& invocation, int& exit_code) {
  auto* command = program.add_subcommand(kGenerate.name, kGenerate.description);
  command->footer(
      "Examples:\n"
      "  chimera generate --from path/to/gpt2 --prompt 'In the beginning' --tokens 50\n"
      "  chimera generate --from path/to/llama --prompt 'Once upon' --temperature 0.8 --top-p 0.9 --seed 7\n"
      "  chimera generate --from path/to/tuned --prompt 'Q: why?' --prompt 'Q: who?' --stop 'Q:'\n"
      "  chimera generate --from run --prompt 'Once upon'   # the newest checkpoint of a run\n"
      "  chimera generate --from path/to/model --prompt-ids 15496,995 --format json\n"
      "  chimera generate --from path/to/llama --prompt 'Once upon' --stages 4   # its layers on four processes\n"
      "\nThe command prints what the model says after each prompt, as it says it; with several prompts, a line such as "
      "`prompt 2:` before each. It ends at the folder's eos_token_id (generation_config.json, else config.json), at a "
      "text of --stop, or after --tokens tokens. Special tokens, and the text of --stop, are left out of the text. "
      "--format json prints at the end {\"prompts\": [{\"ids\": [...], \"text\": \"...\"}]}, new tokens only, the last "
      "one of eos_token_id included; the text is null where there is no tokenizer.\n"
      "\nWithout --temperature the likeliest token follows. With it, scores are divided by the temperature, all but "
      "the likeliest tokens are dropped by --top-k and then --top-p, and one is drawn: equal seeds draw equally, and "
      "each prompt has draws of its own. Keys and values of earlier tokens are remembered, so that each is computed "
      "once. docs/generation.md says more.\n"
      "\nExit codes: 1 a rank failed, or scores are not finite; 2 wrong usage, or prompts that do not fit the model.");
  auto options = std::make_shared<GenerateOptions>();
  add_flags(*command, *options);
  command->callback([options, &invocation, &exit_code] {
    keep_freed_memory();
    exit_code = run(*options, invocation);
  });
}

}  // namespace chimera::apps

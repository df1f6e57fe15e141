
#include <memory>

#include "commands.h"
#include "flags/values.h"
#include "help.h"
#include "hugging_face/config_json.h"
#include "run_on_model.h"
#include "safetensors/weight_files.h"
#include "train/export/export_model.h"

namespace chimera::apps {
namespace {

struct ExportOptions {
  std::string source;
  std::string output;
  std::optional<ElementType> type;  // empty: unchanged
  std::string tokenizer;            // empty: tokenizer of the source
  std::uint64_t shard_bytes = kDefaultShardBytes;
};

}  // namespace

void add_export(CLI::App& program, const Invocation& invocation, int& exit_code) {
  auto* command = program.add_subcommand(kExport.name, kExport.description);
  command->footer(
      "Examples:\n"
      "  chimera export run --output path/to/model   # the newest checkpoint of a run\n"
      "  chimera export path/to/tuned --output path/to/small --dtype bfloat16\n"
      "  chimera export path/to/llama --output path/to/sharded --shard-size 300MB\n"
      "  chimera export path/to/bytes --output path/to/named --tokenizer bytes\n"
      "\nThe command reads a checkpoint, or a folder of `chimera train --export` or save_pretrained, and writes a "
      "folder that from_pretrained loads. It holds at most one block of a tensor in memory. The folder appears when it "
      "is complete.\n"
      "\nMore: docs/folders.md");
  auto options = std::make_shared<ExportOptions>();
  command->add_option("RUN", options->source, "folder of a model, a checkpoint, or a folder of checkpoints")
      ->required();
  begin_group(*command, heading::kOutput);
  add_path(*command, "--output", options->output, "new folder for the model", PathKind::Folder)->required();
  add_word(
      *command, "--dtype", element_type_names(),
      [options](const std::string& word) { options->type = element_type_of_word("--dtype", word); },
      "type of all tensors (default: unchanged)");
  add_text(
      *command, "--shard-size",
      [options](const std::string& text) { options->shard_bytes = parse_bytes("--shard-size", text); }, "SIZE",
      "maximum bytes of tensors per file, such as 300MB (default 5GB)");
  add_path(
      *command, "--tokenizer", options->tokenizer,
      "tokenizer.json, vocab.json, vocab.txt, a folder with one of them, or `bytes` (default: the tokenizer of RUN, "
      "if it still exists)");
  command->callback([options, &invocation, &exit_code] {
    // For one rank, run_on_model() starts no process. It is used for a run that trains on: if this removes the
    // checkpoint while it is read, the export begins again with a newer one.
    exit_code = run_on_model({.from = options->source}, invocation, [&](const std::string& folder) -> RankFunction {
      return [&, folder](RankId, Transport&) {
        // An unchanged type copies the bytes of all tensors.
        convert_folder(folder, options->output, options->type, options->shard_bytes, options->tokenizer);
      };
    });
  });
}

}  // namespace chimera::apps

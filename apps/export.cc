#include <fmt/format.h>

#include <memory>
#include <optional>

#include "checkpoint/checkpoint_folder.h"
#include "commands.h"
#include "core/cgroup.h"
#include "core/error.h"
#include "export_flags.h"
#include "help.h"
#include "hugging_face/config_json.h"
#include "hugging_face/export_plan.h"
#include "options.h"
#include "train/export/export_model.h"

namespace chimera::apps {
namespace {

struct ExportOptions {
  std::string source;
  std::string output;
  std::string dtype;      // empty: unchanged
  std::string tokenizer;  // empty: tokenizer of the source
  std::uint64_t shard_bytes = kDefaultShardBytes;
};

}  // namespace

void add_export(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand(kExport.name, kExport.description);
  command->footer(
      "Examples:\n"
      "  chimera export path/to/tuned --output path/to/small --dtype bfloat16\n"
      "  chimera export path/to/llama --output path/to/sharded --shard-size 300MB\n"
      "  chimera export path/to/bytes --output path/to/named --tokenizer bytes\n"
      "\nThe command reads a folder that `chimera train --export` or save_pretrained wrote, and writes one that "
      "from_pretrained loads: config.json, generation_config.json, the files of the tokenizer, and safetensors, in "
      "several "
      "files with an index where one would be too large. Without --dtype every tensor keeps its bytes. No more than a "
      "block of a tensor is in memory. The folder appears whole or not at all. docs/folders.md says what comes in, "
      "what "
      "goes out and what is refused.");
  auto options = std::make_shared<ExportOptions>();
  command->add_option("RUN", options->source, "folder of a model, a checkpoint, or a folder of these")->required();
  begin_group(*command, heading::kOutput);
  add_path(*command, "--output", options->output, "write to this new folder", PathKind::Folder)->required();
  add_element_type(*command, "--dtype", options->dtype, "type of all tensors (default: each keeps its own)");
  add_shard_size(*command, "--shard-size", options->shard_bytes);
  add_path(
      *command, "--tokenizer", options->tokenizer,
      "tokenizer.json, vocab.json, vocab.txt, the folder of one, or the word bytes: its files in place of those of "
      "RUN");
  command->callback([options] {
    std::optional<ElementType> type;
    if (!options->dtype.empty()) type = element_type_of_word("--dtype", options->dtype);
    convert_folder(resolved_model_folder(options->source, available_cores()), options->output, type,
                   options->shard_bytes, options->tokenizer);
  });
}

}  // namespace chimera::apps

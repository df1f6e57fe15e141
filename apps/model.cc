#include "model_config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "answers/model_answer.h"
#include "commands.h"
#include "core/error.h"
#include "generate/registry.h"
#include "help.h"
#include "hugging_face/model_folder.h"
#include "model_flags.h"
#include "options.h"
#include "plan/plan.h"
#include "simulate/costs.h"

namespace chimera::apps {
namespace {

constexpr std::int64_t kSequence = 128;  // as in `chimera train`

struct ModelArguments {
  std::string name;
  ModelFlags flags;
  std::int64_t stages = 1;
  PartitionChoice partition;
  std::string schedule = kPlainSchedule;
  CLI::Option* schedule_option = nullptr;
  std::int64_t micro_batches = 0;  // 0: number of stages
  std::int64_t micro_batch_size = 4;
  std::int64_t sequence = kSequence;
  CLI::Option* sequence_option = nullptr;
  DataType dtype = DataType::Float32;
  OptimizerKind optimizer = OptimizerKind::AdamW;
  double dropout = 0;
  Format format = Format::Text;
  std::string output;
};

Workload workload_of(const ModelArguments& options, const ModelConfig& model) {
  Workload workload = chimera::workload_of(options.dtype, options.optimizer);
  workload.micro_batch_size = options.micro_batch_size;
  workload.sequence = options.sequence;
  if (options.sequence_option->count() == 0)
    workload.sequence = std::min({kSequence, model.positions, model.sliding_window.value_or(kSequence)});
  workload.dropout = options.dropout > 0;
  return workload;
}

/// Generates ops only if the partition or an explicit --schedule needs them.
Schedule schedule_of(const ModelArguments& options) {
  if (options.partition.rule != PartitionRule::Balanced && options.schedule_option->count() == 0) {
    Schedule schedule;
    schedule.stages = options.stages;
    return schedule;
  }
  const std::int64_t micro_batches = options.micro_batches == 0 ? options.stages : options.micro_batches;
  const Generator& generator = find_generator(options.schedule);
  return generator.generate(default_shape(generator, options.stages, micro_batches));
}

ModelReport report_of(const ModelArguments& options) {
  const ModelConfig model = with_overrides(find_model_or_folder(options.name), options.flags.overrides());
  constexpr std::int64_t kMany = 1'000'000'000;
  if (options.stages < 1) throw ConfigError(fmt::format("--stages must be at least 1, not {}", options.stages));
  require_between("--micro-batch-size", options.micro_batch_size, 1, kMany);
  require_between("--sequence", options.sequence, 1, kMany);
  require_between("--micro-batches", options.micro_batches, 0, kMany);
  if (options.dropout >= 1) throw ConfigError(fmt::format("--dropout must be below 1, not {}", options.dropout));
  const Workload workload = workload_of(options, model);
  const Schedule schedule = schedule_of(options);
  return {model, named_partition(options.partition, {.schedule = schedule, .model = model, .workload = workload}),
          workload, options.dtype, options.optimizer};
}

std::string printed(const ModelReport& report, Format format) {
  if (format == Format::Json) return model_json(report);
  if (format == Format::Costs) return costs_to_json(flop_costs(report));
  return format == Format::Svg ? model_svg(report) : model_text(report);
}

}  // namespace

void add_model(CLI::App& program, int&) {
  auto* command = program.add_subcommand("model",
                                         "Count a model's parameters, FLOPs and memory, layer by layer and stage by "
                                         "stage");
  command->footer(
      "Examples:\n"
      "  chimera model bert-48 --stages 4 --micro-batch-size 8\n"
      "  chimera model gpt2-64 --stages 32 --format json\n"
      "  chimera model gpt2 --stages 4 --dtype bfloat16 --format svg --output gpt2.svg\n"
      "  chimera model gpt2 --layers 24 --tied false\n"
      "  chimera model path/to/llama   # a Hugging Face folder\n"
      "  chimera model gpt2 --stages 4 --schedule chimera --partition balanced --format costs --output costs.json\n"
      "\nThe command counts and allocates nothing. FLOPs and activations are those of one micro-batch. F is the "
      "forward, I + W the backward. Activations are what F keeps for the backward; those of a stage include its input "
      "(the boundary). \"I to W\" is what a split backward keeps from I to W. The working set is what an op allocates "
      "beyond all that while it runs. --format costs writes what `chimera simulate --costs` reads, with 10^9 FLOPs as "
      "the unit of time.\n"
      "\nModels: " +
      listed_models() +
      ", or a TOML file with the fields family, layers, hidden, heads, feed_forward, vocabulary, positions, tied, and "
      "those of docs/models.md. A tied matrix counts once in the total; the stage with the embedding has it, and so "
      "has the stage with the head.");
  auto options = std::make_shared<ModelArguments>();
  command->add_option("NAME", options->name, "a preset, a TOML file, or a Hugging Face folder")->required();
  begin_group(*command, heading::kModel);
  options->flags.add_to(*command);
  add_number(*command, "--dropout", options->dropout, "probability with which dropout zeroes an element (default 0)");
  add_count(*command, "--micro-batch-size", options->micro_batch_size, "sequences of a micro-batch (default 4)");
  options->sequence_option = add_count(*command, "--sequence", options->sequence,
                                       "tokens of a sequence (default 128, or the model's positions where fewer)");
  add_choice(*command, "--dtype", options->dtype,
             "type of hidden states; bfloat16 is mixed precision with float32 master weights (default float32)");
  add_choice(*command, "--optimizer", options->optimizer, "optimizer whose state is counted (default adamw)");
  begin_group(*command, heading::kSchedule);
  add_count(*command, "--stages", options->stages, "D, the workers to cut the model for (default 1)");
  add_partition(*command, options->partition);
  options->schedule_option =
      command
          ->add_option(
              "--schedule", options->schedule,
              std::string("schedule whose workers hold the stages; one with virtual stages cuts the model into "
                          "more than D (default ") +
                  kPlainSchedule + ")")
          ->type_name("NAME");
  add_count(*command, "--micro-batches", options->micro_batches,
            "N, the micro-batches of a step (default: as many as --stages)");
  begin_group(*command, heading::kOutput);
  add_format(*command, options->format, {Format::Text, Format::Json, Format::Svg, Format::Costs});
  add_path(*command, "--output", options->output, "write to this file instead of standard output");
  command->callback([options] { write_output(options->output, printed(report_of(*options), options->format)); });
}

}  // namespace chimera::apps

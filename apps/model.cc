#include "flags/model.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "model_config/config.h"

#include <algorithm>
#include <memory>

#include "answers/model_answer.h"
#include "commands.h"
#include "core/reject.h"
#include "generate/registry.h"
#include "help.h"
#include "hugging_face/model_folder.h"
#include "plan/plan.h"
#include "simulate/costs_json.h"

namespace chimera::apps {
namespace {

constexpr std::int64_t kSequence = 128;  // as in `chimera train`

struct ModelArguments {
  std::string name;
  ModelOverrides fields;
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
  Workload workload = chimera::workload_of(options.dtype, options.optimizer, options.sequence);
  workload.micro_batch_size = options.micro_batch_size;
  // The default must fit every model, also one with few positions or a narrow window.
  if (options.sequence_option->count() == 0)
    workload.sequence = std::min({kSequence, model.positions, model.sliding_window.value_or(kSequence)});
  workload.dropout = options.dropout > 0;
  return workload;
}

bool needs_schedule(const PartitionChoice& partition) {
  return partition.rule == PartitionRule::Balanced || partition.rule == PartitionRule::Auto;
}

/// Generates ops only if the partition or an explicit --schedule needs them.
Schedule schedule_of(const ModelArguments& options) {
  if (!needs_schedule(options.partition) && options.schedule_option->count() == 0) {
    Schedule schedule;
    schedule.stages = options.stages;
    return schedule;
  }
  const std::int64_t micro_batches = options.micro_batches == 0 ? options.stages : options.micro_batches;
  const Generator& generator = find_generator(options.schedule);
  return generator.generate(default_shape(generator, options.stages, micro_batches));
}

ModelSummary report_of(const ModelArguments& options) {
  const ModelConfig model = with_overrides(find_model_or_folder(options.name), options.fields);
  constexpr std::int64_t kMany = 1'000'000'000;
  if (options.stages < 1) reject("--stages must be at least 1, not {}", options.stages);
  require_between("--micro-batch-size", options.micro_batch_size, 1, kMany);
  require_between("--sequence", options.sequence, 1, kMany);
  require_between("--micro-batches", options.micro_batches, 0, kMany);
  if (options.dropout >= 1) reject("--dropout must be below 1, not {}", options.dropout);
  // The partition may need the schedule (balanced), and the memory of workers needs both.
  const Workload workload = workload_of(options, model);
  const Schedule schedule = schedule_of(options);
  ModelSummary report{
      model, resolve_partition(options.partition, {.schedule = schedule, .model = model, .workload = workload}),
      workload, options.dtype, options.optimizer};
  if (options.schedule_option->count() > 0) {
    report.workers = worker_footprints(schedule, stage_bytes(model, report.partition, schedule, workload));
  }
  return report;
}

std::string print_model(const ModelSummary& report, Format format) {
  if (format == Format::Json) return model_json(report);
  if (format == Format::Costs) return costs_to_json(flop_costs(report));
  return format == Format::Svg ? model_svg(report) : model_text(report);
}

}  // namespace

void add_model(CLI::App& program, int&) {
  auto* command = program.add_subcommand("model", "Count parameters, FLOPs and memory of a model, per layer and stage");
  command->footer(
      "Examples:\n"
      "  chimera model bert-48 --stages 4 --micro-batch-size 8\n"
      "  chimera model gpt2-64 --stages 32 --format json\n"
      "  chimera model gpt2 --stages 4 --dtype bfloat16 --format svg --output gpt2.svg\n"
      "  chimera model gpt2 --layers 24 --tied false\n"
      "  chimera model path/to/llama   # a Hugging Face folder\n"
      "  chimera model gpt2 --stages 4 --schedule chimera --partition balanced --format costs --output costs.json\n"
      "\nFLOPs and activations are those of one micro-batch. F is the forward, I + W the backward. Activations of a "
      "stage include its input. \"I to W\" is what a split backward keeps between I and W. The working set is "
      "temporary "
      "memory of an op. --format costs writes a file for `chimera simulate --costs`; its unit of time is 10^9 FLOPs.\n"
      "\nPresets: " +
      preset_list() + ".\n\nMore: docs/models.md");
  auto options = std::make_shared<ModelArguments>();
  complete_names(
      command->add_option("NAME", options->name, "a preset, a TOML file, or a Hugging Face folder")->required(),
      preset_names());
  begin_group(*command, heading::kModel);
  add_model_fields(*command, options->fields);
  add_number(*command, "--dropout", options->dropout, "dropout probability (default 0)");
  add_count(*command, "--micro-batch-size", options->micro_batch_size, "sequences per micro-batch (default 4)");
  options->sequence_option =
      add_count(*command, "--sequence", options->sequence,
                "tokens per sequence (default 128, or all positions of the model if it has fewer)");
  add_choice(*command, "--dtype", options->dtype,
             "type of hidden states; bfloat16: mixed precision with float32 master weights (default float32)");
  add_choice(*command, "--optimizer", options->optimizer, "optimizer whose state is counted (default adamw)");
  begin_group(*command, heading::kSchedule);
  add_count(*command, "--stages", options->stages, "number of workers to partition the model for (D; default 1)");
  add_partition(*command, options->partition);
  options->schedule_option =
      command
          ->add_option("--schedule", options->schedule,
                       std::string("schedule that places stages on workers, whose memory is then "
                                   "printed; some have more than D stages (default ") +
                           kPlainSchedule + ")")
          ->type_name("NAME");
  complete_names(options->schedule_option, schedule_names());
  add_count(*command, "--micro-batches", options->micro_batches,
            "micro-batches per step, for --schedule (N; default: as many as --stages)");
  begin_group(*command, heading::kOutput);
  add_format_and_output(*command, options->format, {Format::Text, Format::Json, Format::Svg, Format::Costs},
                        options->output);
  set_common_flags(*command, {"--layers", "--hidden", "--micro-batch-size", "--sequence", "--dtype", "--stages",
                              "--partition", "--schedule", "--format", "--output"});
  command->callback([options, command] {
    const bool has_schedule = options->schedule_option->count() > 0;
    require_effect(*command, {"--micro-batches"}, has_schedule || needs_schedule(options->partition), "--schedule");
    write_output(options->output, print_model(report_of(*options), options->format));
  });
}

}  // namespace chimera::apps

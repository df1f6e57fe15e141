#include <fmt/ranges.h>
#include <memory>

#include "answers/model_answer.h"
#include "commands.h"
#include "flags/files.h"
#include "flags/flag_door.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "simulate/costs_json.h"

namespace chimera::apps {
namespace {

std::string print_model(const ModelAnswer& found, Format format) {
  if (format == Format::Json) return model_json(found);
  if (format == Format::Costs) return costs_to_json(costs_of(found));
  return format == Format::Svg ? model_svg(found) : model_text(found);
}

}  // namespace

void add_model(CLI::App& program, const Invocation&, int&) {
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
      fmt::format("{}", fmt::join(preset_names(), ", ")) + ".\n\nMore: docs/models.md");
  auto options = std::make_shared<RequestArguments<ModelRequest>>();
  complete_names(command->add_option("NAME", options->request.model, "a preset, a TOML file, or a Hugging Face folder")
                     ->required(),
                 preset_names());
  options->request.find = find_model_or_run;
  options->request.schedule.load = read_schedule;
  add_flags(*command, options->request);
  add_format_and_output(*command, options->format, {Format::Text, Format::Json, Format::Svg, Format::Costs},
                        options->output);
  set_common_flags(*command, {"--layers", "--hidden", "--micro-batch-size", "--sequence", "--dtype", "--stages",
                              "--partition", "--schedule", "--format", "--output"});
  command->callback([options] {
    write_output(options->output, print_model(answer(options->request), options->format), options->format);
  });
}

}  // namespace chimera::apps

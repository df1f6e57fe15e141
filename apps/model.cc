#include "model/config.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/error.h"
#include "model/parameters.h"
#include "model/partition.h"
#include "model_flags.h"
#include "options.h"

namespace chimera::apps {
namespace {

struct Options {
  std::string name;
  ModelFlags flags;
  std::int64_t stages = 1;
  std::string format;
};

std::string parts(const StageLayers& stage) {
  std::string text = fmt::format("layers {} to {}", stage.first_layer, stage.end_layer - 1);
  if (stage.embedding) text = "embedding, " + text;
  if (stage.head) text += ", head";
  return text;
}

std::string as_json(const ModelConfig& model, const std::vector<StageLayers>& partition) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const StageLayers& stage : partition) {
    stages.push_back({{"parameters", parameter_count(model, stage)},
                      {"layers", stage.end_layer - stage.first_layer},
                      {"first_layer", stage.first_layer},
                      {"embedding", stage.embedding},
                      {"head", stage.head}});
  }
  const nlohmann::ordered_json json = {{"name", model.name},
                                       {"family", family_name(model.family)},
                                       {"parameters", parameter_count(model)},
                                       {"layers", model.layers},
                                       {"hidden", model.hidden},
                                       {"heads", model.heads},
                                       {"feed_forward", model.feed_forward},
                                       {"vocabulary", model.vocabulary},
                                       {"positions", model.positions},
                                       {"tied", model.tied},
                                       {"stages", stages}};
  return json.dump(2) + "\n";
}

std::string as_text(const ModelConfig& model, const std::vector<StageLayers>& partition) {
  std::string text = fmt::format("{}: {} parameters\n", model.name, parameter_count(model));
  text += fmt::format("  {}, {} layers, {} wide, {} heads, feed-forward {}, vocabulary {}, {} positions, head {}\n",
                      family_name(model.family), model.layers, model.hidden, model.heads, model.feed_forward,
                      model.vocabulary, model.positions, model.tied ? "tied" : "untied");
  if (partition.size() == 1) return text;
  for (std::size_t s = 0; s < partition.size(); ++s) {
    text += fmt::format("stage {:>3}  {:>14} parameters  {}\n", s, parameter_count(model, partition[s]),
                        parts(partition[s]));
  }
  return text;
}

}  // namespace

void add_model(CLI::App& program, int&) {
  auto* command = program.add_subcommand("model", "Count the parameters of a model, in all and for each stage");
  command->footer(
      "Examples:\n"
      "  chimera model bert-48 --stages 4\n"
      "  chimera model gpt2-64 --stages 32 --format json\n"
      "  chimera model gpt2 --layers 24 --tied false\n"
      "\nNothing is allocated. Models: " +
      listed_models() +
      ", or a TOML file with the fields family, layers,\n"
      "hidden, heads, feed_forward, vocabulary, positions, tied. A tied matrix counts once in the total; the stage\n"
      "with the embedding has it, and so has that with the head.");
  auto options = std::make_shared<Options>();
  command->add_option("NAME", options->name, "a preset, or a TOML file")->required();
  add_count(*command, "--stages", options->stages, "cut into this many stages (default 1)");
  options->flags.add_to(*command);
  add_format(*command, options->format, {"text", "json"});
  command->callback([options] {
    const ModelConfig model = with_overrides(find_model(options->name), options->flags.overrides());
    if (options->stages < 1) throw ConfigError(fmt::format("--stages must be at least 1, not {}", options->stages));
    const auto partition = even_partition(model.layers, options->stages);
    write_output("", options->format == "json" ? as_json(model, partition) : as_text(model, partition));
  });
}

}  // namespace chimera::apps

#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "core/error.h"
#include "core/json.h"
#include "flags/outputs.h"

namespace chimera::apps {
namespace {

std::string rendezvous_text(const RankPlace& place, const Variables& variables) {
  try {
    const RendezvousPoint rendezvous = rendezvous_point(place, variables);
    if (!rendezvous.file.empty()) return rendezvous.file;
    const char* guard = rendezvous.is_agent         ? "torchrun's agent asks for no secret"
                        : rendezvous.secret.empty() ? "without a secret: see CHIMERA_SECRET"
                                                    : "with a secret";
    return fmt::format("{}:{}, {}", rendezvous.host, rendezvous.port, guard);
    // A rank that cannot find the rendezvous would fail in training. This command shows why.
  } catch (const Error& error) {
    return fmt::format("not known: {}", error.what());
  }
}

std::string lines_of(const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables) text += fmt::format("  {}={}\n", name, value);
  return text;
}

/// Says which variables of launchers are set although no launcher has given this process a place.
std::string unplaced_text(const Variables& variables) {
  const Variables seen = launcher_variables(variables);
  if (seen.empty()) return "No launcher has started this process: `chimera train` starts its ranks itself.\n";
  return "These variables of launchers give this process no place among others, so `chimera train` starts its ranks "
         "itself:\n" +
         lines_of(seen);
}

std::string as_text(const RankPlace& place, const std::string& rendezvous) {
  std::string text =
      fmt::format("started by   {}\nrank         {} of {}\non its host  {} of {}\n", to_text(place.launcher),
                  place.rank, place.world_size, place.local_rank, place.local_size);
  if (place.world_size > 1) text += fmt::format("ranks meet   {}\n", rendezvous);
  if (!place.conflict.empty()) text += fmt::format("conflict     {}\n", place.conflict);
  return text + lines_of(place.read);
}

std::string as_json(const std::optional<RankPlace>& place, const std::string& rendezvous) {
  if (!place) return "null\n";
  nlohmann::ordered_json json = {
      {"launcher", to_text(place->launcher)},
      {"rank", place->rank},
      {"world_size", place->world_size},
      {"local_rank", place->local_rank},
      {"local_world_size", place->local_size},
      {"meeting", place->world_size > 1 ? nlohmann::ordered_json(rendezvous) : nullptr},
      {"conflict", place->conflict.empty() ? nullptr : nlohmann::ordered_json(place->conflict)},
      {"variables", place->read}};
  return json_report(json);
}

}  // namespace

void add_env(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand("env", "Show rank and world size that a launcher gave this process");
  command->footer(
      "Examples:\n"
      "  chimera env\n"
      "  srun -n 2 chimera env\n"
      "  mpirun -n 2 chimera env --format json\n"
      "\n`chimera train` takes its rank from the first of these whose variables are set: CHIMERA_RANK and "
      "CHIMERA_WORLD_SIZE, torchrun, Open MPI, SLURM, MPICH. Without any of them it starts the ranks itself. Variables "
      "of a launcher that do not tell the place of a process, such as PMIX_RANK alone, are refused: each process would "
      "train a model of its own. `chimera env` lists the variables that it has seen.\n"
      "\nMore: docs/clusters.md");
  auto format = std::make_shared<Format>();
  add_format(*command, *format, {Format::Text, Format::Json});
  command->callback([format] {
    const Variables variables = own_variables();
    std::optional<RankPlace> place;
    try {
      place = find_place(variables);
    } catch (const ConfigError&) {
      if (*format == Format::Text) write_output("", "seen:\n" + lines_of(launcher_variables(variables)));
      throw;
    }
    const std::string rendezvous = place && place->world_size > 1 ? rendezvous_text(*place, variables) : "";
    write_output("", *format == Format::Json ? as_json(place, rendezvous)
                     : place                 ? as_text(*place, rendezvous)
                                             : unplaced_text(variables));
  });
}

}  // namespace chimera::apps

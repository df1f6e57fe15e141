#include "launch/local/place.h"

#include <unistd.h>

#include <fmt/format.h>
#include <charconv>
#include <functional>
#include <string_view>

#include "core/choices.h"
#include "core/error.h"

namespace chimera {
namespace {

class Reader {
 public:
  Reader(const Variables& variables, const char* rank) : variables_(variables), rank_(rank) {}

  [[nodiscard]] bool has(const std::string& name) const { return variables_.contains(name); }

  std::string text(const std::string& name) {
    const auto found = variables_.find(name);
    if (found == variables_.end()) {
      throw ConfigError(fmt::format("{} is not set, but {} is; a launcher sets both", name, rank_));
    }
    read_.insert(*found);
    return found->second;
  }

  int number(const std::string& name) {
    const std::string word = text(name);
    const auto number = parse_number<int>(word);
    if (!number || *number < 0) throw ConfigError(fmt::format("{} is '{}'; expected a number, 0 or more", name, word));
    return *number;
  }
  int number(const std::string& name, int otherwise) { return has(name) ? number(name) : otherwise; }

  [[nodiscard]] const Variables& read() const { return read_; }

 private:
  const Variables& variables_;
  const char* rank_;
  Variables read_;
};

/// Without a local size, there is one process per host.
RankPlace by_variables(Reader& read) {
  return {.rank = read.number(kRankVariable),
          .world_size = read.number(kWorldSizeVariable),
          .local_rank = read.number(kLocalRankVariable, 0),
          .local_size = read.number(kLocalSizeVariable, 1)};
}

RankPlace by_torchrun(Reader& read) {
  return {.rank = read.number("RANK"),
          .world_size = read.number("WORLD_SIZE"),
          .local_rank = read.number("LOCAL_RANK", 0),
          .local_size = read.number("LOCAL_WORLD_SIZE", 1)};
}

RankPlace by_open_mpi(Reader& read) {
  return {.rank = read.number("OMPI_COMM_WORLD_RANK"),
          .world_size = read.number("OMPI_COMM_WORLD_SIZE"),
          .local_rank = read.number("OMPI_COMM_WORLD_LOCAL_RANK"),
          .local_size = read.number("OMPI_COMM_WORLD_LOCAL_SIZE")};
}

/// Returns the tasks of a node: "3,2(x2)" means 3, 2, 2.
int tasks_of_node(const std::string& list, int node) {
  const auto malformed = [&] {
    return ConfigError(
        fmt::format("SLURM_STEP_TASKS_PER_NODE is '{}'; expected a list as in 3,2(x2), with node {}", list, node));
  };
  const char* at = list.data();
  const char* const end = at + list.size();
  const auto number = [&] {
    int value = 0;
    const auto [rest, error] = std::from_chars(at, end, value);
    if (error != std::errc{} || value < 1) throw malformed();
    at = rest;
    return value;
  };
  for (int first = 0;;) {
    const int tasks = number();
    int nodes = 1;
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      at += 2;
      nodes = number();
      if (at == end || *at++ != ')') throw malformed();
    }
    first += nodes;
    if (node < first) return tasks;
    if (at == end || *at++ != ',') throw malformed();
  }
}

RankPlace by_slurm(Reader& read) {
  const int node = read.number("SLURM_NODEID");
  return {.rank = read.number("SLURM_PROCID"),
          .world_size = read.number(read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS"),
          .local_rank = read.number("SLURM_LOCALID"),
          .local_size = tasks_of_node(read.text("SLURM_STEP_TASKS_PER_NODE"), node)};
}

RankPlace by_hydra(Reader& read) {
  return {.rank = read.number("PMI_RANK"),
          .world_size = read.number("PMI_SIZE"),
          .local_rank = read.number("MPI_LOCALRANKID"),
          .local_size = read.number("MPI_LOCALNRANKS")};
}

struct KnownLauncher {
  LauncherKind kind;
  const char* rank;  ///< Absent in the launcher's own process
  std::function<bool(const Reader&)> started_us;
  std::function<RankPlace(Reader&)> place;
};

/// Returns all launchers, in order of precedence.
const std::vector<KnownLauncher>& known_launchers() {
  static const std::vector<KnownLauncher> launchers = {
      {LauncherKind::Variables, kRankVariable, [](const Reader& read) { return read.has(kRankVariable); },
       by_variables},
      {LauncherKind::Torchrun, "RANK",
       [](const Reader& read) {
         return read.has("RANK") && (read.has("WORLD_SIZE") || read.has("TORCHELASTIC_RUN_ID"));
       },
       by_torchrun},
      {LauncherKind::OpenMpi, "OMPI_COMM_WORLD_RANK",
       [](const Reader& read) { return read.has("OMPI_COMM_WORLD_RANK"); }, by_open_mpi},
      {LauncherKind::Slurm, "SLURM_PROCID",  // also set in batch scripts, unlike SLURM_STEP_ID
       [](const Reader& read) { return read.has("SLURM_PROCID") && read.has("SLURM_STEP_ID"); }, by_slurm},
      {LauncherKind::Hydra, "PMI_RANK",
       [](const Reader& read) { return read.has("PMI_RANK") && read.has("MPI_LOCALRANKID"); }, by_hydra},
  };
  return launchers;
}

void require_possible(const RankPlace& place) {
  const auto require_below = [&](int value, int limit, const char* what, const char* of) {
    if (value < limit) return;
    throw ConfigError(fmt::format("{} gives {} {} of {}; expected less than the {}", to_text(place.launcher), what,
                                  value, limit, of));
  };
  require_below(place.rank, place.world_size, "rank", "world size");
  require_below(place.local_rank, place.local_size, "local rank", "local world size");
  require_below(place.local_size, place.world_size + 1, "local world size", "world size plus one");
}

/// Returns whether `second` is alone, has the same ranks, or has one process per host.
bool agree(const RankPlace& place, const RankPlace& second) {
  if (second.world_size == 1) return true;
  const bool one_a_host = place.local_size == 1 && second.local_size == 1;  // host numbers may differ
  if (one_a_host && second.world_size == place.world_size) return true;
  if (second.world_size == place.world_size) return second.rank == place.rank;
  return second.world_size < place.world_size && !place.on_one_host();
}

std::string conflict_of(const RankPlace& place, const RankPlace& second) {
  return fmt::format(
      "{} gives this process rank {} of {}, but {} gives it rank {} of {}; start the job with one launcher, or unset "
      "the variables of the other",
      to_text(place.launcher), place.rank, place.world_size, to_text(second.launcher), second.rank, second.world_size);
}

}  // namespace

Variables own_variables() {
  Variables variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

const char* rank_variable(LauncherKind launcher) {
  for (const KnownLauncher& known : known_launchers()) {
    if (known.kind == launcher) return known.rank;
  }
  return "";  // unreachable
}

std::optional<RankPlace> find_place(const Variables& variables) {
  if (variables.contains(kLauncherVariable)) return std::nullopt;
  std::optional<RankPlace> found;
  for (const KnownLauncher& launcher : known_launchers()) {
    Reader read(variables, launcher.rank);
    if (!launcher.started_us(read)) continue;
    RankPlace place = launcher.place(read);
    place.launcher = launcher.kind;
    place.read = read.read();
    require_possible(place);
    if (!found) {
      found = std::move(place);
    } else if (found->conflict.empty() && !agree(*found, place)) {
      found->conflict = conflict_of(*found, place);
    }
  }
  return found;
}

}  // namespace chimera

#include "launch/local/place.h"

#include <algorithm>
#include <cstdint>
#include <regex>
#include <set>

#include "core/invariant.h"
#include "core/reject.h"

// Two tables describe launchers: known_launchers() those that tell a process its whole place, and kSigns those that
// tell only a part. find_place() takes the first known launcher whose variables are set; every further one must agree
// with it, because nested launchers, such as srun with torchrun, are usual. If there is none, a sign is an error.

namespace chimera {
namespace {

/// Reads variables of one launcher, and notes which ones it has read.
class Reader {
 public:
  Reader(const Variables& variables, const char* rank) : variables_(variables), rank_(rank) {}

  [[nodiscard]] bool has(const std::string& name) const { return variables_.contains(name); }

  std::string text(const std::string& name) {
    const auto found = variables_.find(name);
    if (found == variables_.end()) reject("{} is not set, but {} is; a launcher sets both", name, rank_);
    read_.insert(*found);
    return found->second;
  }

  int number(const std::string& name) {
    const std::string word = text(name);
    const auto number = parse_number<int>(word);
    if (!number || *number < 0) reject("{} is '{}'; expected a number, 0 or more", name, word);
    return *number;
  }
  int number(const std::string& name, int otherwise) { return has(name) ? number(name) : otherwise; }

  [[nodiscard]] const Variables& read() const { return read_; }

 private:
  const Variables& variables_;
  const char* rank_;
  Variables read_;
};

/// Returns the tasks of a node: "3,2(x2)" means 3, 2, 2.
int tasks_of_node(const std::string& list, int node) {
  // Nine digits at most, so that std::stoi() cannot overflow.
  static const std::regex kEntry(R"(([1-9]\d{0,8})(?:\(x([1-9]\d{0,8})\))?(?:,|$))");
  std::int64_t nodes = 0;
  auto at = list.begin();
  std::smatch entry;
  for (; std::regex_search(at, list.end(), entry, kEntry, std::regex_constants::match_continuous);
       at = entry[0].second) {
    nodes += entry[2].matched ? std::stoi(entry[2]) : 1;
    if (node < nodes) return std::stoi(entry[1]);
  }
  reject("SLURM_STEP_TASKS_PER_NODE is '{}'; expected a list as in 3,2(x2), with node {}", list, node);
}

/// SLURM has no variable for the number of tasks on this node, only a list for all nodes of the step. SLURM_NTASKS is
/// the job's, so the step's number takes precedence.
RankPlace by_slurm(Reader& read) {
  const int node = read.number("SLURM_NODEID");
  return {.launcher = LauncherKind::Slurm,
          .rank = read.number("SLURM_PROCID"),
          .world_size = read.number(read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS"),
          .local_rank = read.number("SLURM_LOCALID"),
          .local_size = tasks_of_node(read.text("SLURM_STEP_TASKS_PER_NODE"), node)};
}

/// Variables of a launcher. The first is absent in the launcher's own process.
struct KnownLauncher {
  LauncherKind kind;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_size;
  std::vector<const char*> others = {};  ///< One of these is set, too
};

/// Returns all launchers, in order of precedence.
const std::vector<KnownLauncher>& known_launchers() {
  static const std::vector<KnownLauncher> launchers = {
      {LauncherKind::Variables, kRankVariable, kWorldSizeVariable, kLocalRankVariable, kLocalSizeVariable},
      // RANK alone is a word that others use, too.
      {LauncherKind::Torchrun,
       "RANK",
       "WORLD_SIZE",
       "LOCAL_RANK",
       "LOCAL_WORLD_SIZE",
       {"WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"}},
      {LauncherKind::OpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE"},
      // SLURM_PROCID is also set in batch scripts, unlike SLURM_STEP_ID
      {LauncherKind::Slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", {"SLURM_STEP_ID"}},
      {LauncherKind::Hydra, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"MPI_LOCALRANKID"}},
      // Cray's PALS
      {LauncherKind::Hydra, "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", {"PMI_LOCAL_RANK"}},
  };
  return launchers;
}

bool has_started_us(const KnownLauncher& launcher, const Reader& read) {
  const auto is_set = [&](const char* name) { return read.has(name); };
  return read.has(launcher.rank) && (launcher.others.empty() || std::ranges::any_of(launcher.others, is_set));
}

/// Reads the place. Users and torchrun may leave out the local rank and size: then there is one process per host.
RankPlace read_place(const KnownLauncher& launcher, Reader& read) {
  if (launcher.kind == LauncherKind::Slurm) return by_slurm(read);
  const bool is_optional = launcher.kind == LauncherKind::Variables || launcher.kind == LauncherKind::Torchrun;
  const auto local = [&](const char* name, int otherwise) {
    return is_optional ? read.number(name, otherwise) : read.number(name);
  };
  return {.launcher = launcher.kind,
          .rank = read.number(launcher.rank),
          .world_size = read.number(launcher.world_size),
          .local_rank = local(launcher.local_rank, 0),
          .local_size = local(launcher.local_size, 1)};
}

void require_possible(const RankPlace& place) {
  const bool is_below = place.rank < place.world_size && place.local_rank < place.local_size;
  if (is_below && place.local_size <= place.world_size) return;
  reject(
      "{} gives rank {} of {}, and rank {} of {} on this host; expected ranks below these numbers, and no more on a "
      "host than in all",
      to_text(place.launcher), place.rank, place.world_size, place.local_rank, place.local_size);
}

/// Returns whether `second` is alone, has the same ranks, or has one process per host.
bool are_consistent(const RankPlace& place, const RankPlace& second) {
  if (second.world_size == 1) return true;
  const bool one_a_host = place.local_size == 1 && second.local_size == 1;  // host numbers may differ
  if (one_a_host && second.world_size == place.world_size) return true;
  if (second.world_size == place.world_size) return second.rank == place.rank;
  // Fewer processes than ranks: the outer launcher has started one per host, such as srun one torchrun each.
  return second.world_size < place.world_size && !place.on_one_host();
}

/// A variable of a launcher that does not tell a process its whole place, and the number of processes, if any.
struct Sign {
  const char* variable;
  const char* world_size = "";
  const char* alone = "";  ///< The variable's value in a process without others
};
constexpr std::array kSigns = {Sign{"PMI_RANK", "PMI_SIZE"},
                               Sign{"PMIX_RANK"},
                               Sign{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                               Sign{"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                               Sign{"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                               Sign{"HOROVOD_RANK", "HOROVOD_SIZE"},
                               Sign{"PALS_RANKID"},
                               Sign{.variable = "SLURM_PROCID", .alone = "0"},  // As in batch scripts
                               Sign{"ALPS_APP_PE"}};

/// Throws ConfigError if variables show that a launcher has started this process among others, but not at which place.
/// Without this, each process would train a model of its own.
void require_no_sign(const Variables& variables) {
  const auto is_one = [&](const char* size) { return variables.contains(size) && variables.at(size) == "1"; };
  for (const KnownLauncher& launcher : known_launchers()) {
    // A part of a launcher's variables without the rank: the rest was lost on the way, for example in a container.
    const bool is_alone = is_one(launcher.world_size) || variables.contains(launcher.rank);
    const bool has_size = variables.contains(launcher.world_size);
    const bool is_ours = launcher.kind == LauncherKind::Variables;
    if (is_alone || !(variables.contains(launcher.local_rank) || (is_ours && has_size))) continue;
    reject("{} is not set, but {} is; a launcher sets both", launcher.rank,
           has_size ? launcher.world_size : launcher.local_rank);
  }
  for (const auto& [variable, size, alone] : kSigns) {
    if (!variables.contains(variable) || is_one(size) || variables.at(variable) == alone) continue;
    reject(
        "{} is '{}': a launcher has started this process among others, but its variables do not tell how many there "
        "are in all and on this host; use torchrun, mpirun of Open MPI or MPICH, srun or `chimera launch`, or set {}, "
        "{}, {} and {}. For a job of its own, unset it (env -u {})",
        variable, variables.at(variable), kRankVariable, kWorldSizeVariable, kLocalRankVariable, kLocalSizeVariable,
        variable);
  }
}

std::string describe_conflict(const RankPlace& place, const RankPlace& second) {
  return fmt::format(
      "{} gives this process rank {} of {}, but {} gives it rank {} of {}; start the job with one launcher, or unset "
      "the variables of the other",
      to_text(place.launcher), place.rank, place.world_size, to_text(second.launcher), second.rank, second.world_size);
}

}  // namespace

const char* rank_variable(LauncherKind launcher) {
  for (const KnownLauncher& known : known_launchers())
    if (known.kind == launcher) return known.rank;
  throw InternalError("a launcher without variables");
}

std::optional<RankPlace> find_place(const Variables& variables) {
  if (variables.contains(kLauncherVariable)) return std::nullopt;
  std::optional<RankPlace> found;
  for (const KnownLauncher& launcher : known_launchers()) {
    Reader read(variables, launcher.rank);
    if (!has_started_us(launcher, read)) continue;
    RankPlace place = read_place(launcher, read);
    place.read = read.read();
    require_possible(place);
    if (!found)
      found = std::move(place);
    else if (found->conflict.empty() && !are_consistent(*found, place))
      found->conflict = describe_conflict(*found, place);
  }
  // PMI and PMIx also stand beside the variables of Open MPI and SLURM, which tell the place.
  if (!found) require_no_sign(variables);
  return found;
}

void require_group_on_one_host(const RankPlace& place, int count) {
  if (place.local_size % count == 0 && place.rank % count == place.local_rank % count) return;
  const int first = place.rank / count * count;
  throw PlaceError(fmt::format(
      "--tensor-parallel {}: ranks {} to {} share layers and must be on one host, but {} gives rank {} local rank {} "
      "of {}; start a multiple of {} consecutive ranks on each host",
      count, first, first + count - 1, to_text(place.launcher), place.rank, place.local_rank, place.local_size, count));
}

Variables launcher_variables(const Variables& variables) {
  std::set<std::string> names;
  for (const KnownLauncher& launcher : known_launchers())
    names.insert({launcher.rank, launcher.world_size, launcher.local_rank, launcher.local_size});
  for (const Sign& sign : kSigns) names.insert({sign.variable, sign.world_size});
  Variables found = variables;
  std::erase_if(found, [&](const auto& each) { return !names.contains(each.first); });
  return found;
}

}  // namespace chimera

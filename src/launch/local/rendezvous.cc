#include "launch/local/rendezvous.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>

#include "core/choices.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "core/value_text.h"
#include "launch/local/process.h"
#include "rendezvous/channel.h"

// rendezvous_point() near the end decides; before it stand the sources from which it chooses: the process that all
// ranks of a host descend from, which names the default file; the user's own folder; the variables of a server; and,
// for SLURM, a server that every rank computes from the job's number.

namespace chimera {
namespace {

constexpr const char* kInterfaceVariable = "GLOO_SOCKET_IFNAME";  // c10d reads it only in Python

std::string value_of(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

/// Returns whether a process was started as a rank of `launcher`, or, if ranks are started by hand, of any launcher: a
/// script of MPI's may set CHIMERA_RANK from MPI's variables. Returns false if the environment is not readable.
bool is_rank_of(LauncherKind launcher, pid_t process) {
  std::ifstream variables(fmt::format("/proc/{}/environ", process), std::ios::binary);
  for (std::string each; std::getline(variables, each, '\0');) {
    const auto sets = [&](LauncherKind kind) { return each.starts_with(std::string(rank_variable(kind)) + "="); };
    const auto is_any = [&](const Named<LauncherKind>& kind) { return sets(kind.value); };
    if (launcher == LauncherKind::Variables ? std::ranges::any_of(kNames<LauncherKind>, is_any) : sets(launcher))
      return true;
  }
  return false;
}

/// A process that all ranks of this host descend from.
struct LauncherProcess {
  pid_t id = 0;
  std::string name;  ///< Of its program; may be empty
  std::string key;   ///< Id and start time, because ids are reused
};

/// Skips scripts and wrappers in between, so that all ranks of the host find the same process.
LauncherProcess launcher_process(const RankPlace& place) {
  // Indexes into process_stat(), whose first element is field 3 of proc(5): the parent is field 4, the start time field
  // 22.
  constexpr std::size_t kParent = 1;
  constexpr std::size_t kStartTime = 19;
  LauncherProcess found{.id = ::getppid()};
  for (auto stat = process_stat(found.id); stat.size() > kStartTime; stat = process_stat(found.id)) {
    if (!is_rank_of(place.launcher, found.id)) {
      std::getline(std::ifstream(fmt::format("/proc/{}/comm", found.id)), found.name);
      found.key = fmt::format("{}-{}", found.id, stat[kStartTime]);
      return found;
    }
    found.id = std::stoi(stat[kParent]);
  }
  found.key = std::to_string(found.id);
  return found;
}

/// Returns "SLURM has set SLURM_NTASKS=4, SLURM_PROCID=0; the ranks meet at PLACE".
std::string describe_origin(const RankPlace& place, const std::string& where) {
  if (place.read.empty()) return "the ranks meet at " + where;  // `chimera launch` has started them
  const auto set = mapped(place.read, [](const auto& each) { return fmt::format("{}={}", each.first, each.second); });
  const bool is_by_hand = place.launcher == LauncherKind::Variables;
  return fmt::format("{}{} {} set; the ranks meet at {}; for a job of its own, unset {} (env -u)",
                     is_by_hand ? "" : fmt::format("by {}, ", to_text(place.launcher)), fmt::join(set, ", "),
                     set.size() == 1 ? "is" : "are", where, rank_variable(place.launcher));
}

/// Returns a folder that only this user can access.
///
/// Other users can write in the parent folder. A folder that another user has made would let them read the store or put
/// links into it, so owner and mode are checked after mkdir(), without following a link.
std::filesystem::path own_folder() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  const std::filesystem::path folder = parent / fmt::format("chimera-{}", ::getuid());
  struct stat status {};
  const bool is_own = !error && (::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) &&
                      ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::getuid() &&
                      (status.st_mode & 077U) == 0;
  if (!is_own) {
    throw Error(
        fmt::format("the rendezvous folder '{}' cannot be made, or is not of this user alone; remove it, or set TMPDIR "
                    "to a folder that can be written",
                    folder.string()));
  }
  return folder;
}

std::uint16_t port_of(const std::string& variable, const std::string& text) {
  const auto port = parse_number<std::uint16_t>(text);
  if (!port || *port == 0) reject("{} is '{}'; expected a port, 1 .. 65535", variable, text);
  return *port;
}

/// Half of a pair is an error: the other half is misspelled, or was lost on the way to the rank.
std::optional<RendezvousPoint> given_server(const Variables& variables) {
  for (const auto& [host, port] :
       {std::pair(kMasterAddressVariable, kMasterPortVariable), std::pair("MASTER_ADDR", "MASTER_PORT")}) {
    const std::string address = value_of(variables, host);
    const std::string number = value_of(variables, port);
    if (address.empty() != number.empty()) {
      reject("{} is set but {} is not; set both, or none", address.empty() ? port : host,
             address.empty() ? host : port);
    }
    const bool has_brackets = address.starts_with('[') && address.ends_with(']');  // as in [fd00::1]:29500
    const std::string name = has_brackets ? address.substr(1, address.size() - 2) : address;
    if (!address.empty()) return RendezvousPoint{.host = name, .port = port_of(port, number)};
  }
  return std::nullopt;
}

std::string job_secret(const Variables& variables) {
  const std::string file = value_of(variables, kSecretFileVariable);
  const std::string secret = value_of(variables, kSecretVariable);
  if (!file.empty() && !secret.empty()) reject("{} and {} are both set; set one", kSecretVariable, kSecretFileVariable);
  return file.empty() ? secret : read_secret(file);
}

/// Returns 0 if the variable is not set.
std::uint32_t number_of(const Variables& variables, const char* name) {
  const std::string text = value_of(variables, name);
  const auto number = parse_number<std::uint32_t>(text.empty() ? "0" : text);
  if (!number) reject("{} is '{}'; expected a number", name, text);
  return *number;
}

/// Returns the server of a SLURM step: its first node has rank 0; concurrent steps have different ports.
RendezvousPoint slurm_server(const Variables& variables) {
  constexpr std::uint64_t kFirstPort = 20000;  // below the ephemeral ports
  constexpr std::uint64_t kPorts = 10000;
  // Jobs with consecutive numbers are 17 ports apart, so that up to 17 steps of each have ports of their own.
  constexpr std::uint64_t kSteps = 17;  // coprime to kPorts, so that 10000 jobs have their own ports
  const auto nodes = expand_hosts(value_of(variables, "SLURM_STEP_NODELIST"));
  if (nodes.empty()) reject("SLURM_STEP_NODELIST is not set; set MASTER_ADDR and MASTER_PORT");
  const std::uint64_t step = number_of(variables, "SLURM_JOB_ID") * kSteps + number_of(variables, "SLURM_STEP_ID");
  const std::uint64_t port = kFirstPort + step % kPorts;
  return {.host = nodes.front(), .port = static_cast<std::uint16_t>(port)};
}

[[noreturn]] void refuse_nodes(const std::string& list) {
  reject("the node list '{}' is malformed; expected a list as in n[0-2,07],login, or MASTER_ADDR and MASTER_PORT",
         list);
}

/// Appends the hosts of a range such as 3 or 07-10 in a bracket behind `prefix`. Returns false if it is no range.
bool add_range(const std::string& prefix, std::string_view range, std::vector<std::string>& hosts) {
  constexpr std::uint32_t kMaxHosts = 1 << 16;  // MaxNodeCount of SLURM
  const auto ends = split_at('-', range);
  const auto first = parse_number<std::uint32_t>(ends.front());
  const auto last = parse_number<std::uint32_t>(ends.back());
  if (ends.size() > 2 || !first || !last || *last < *first || *last - *first >= kMaxHosts) return false;
  // With 32 bits, `n <= *last` would hold forever for the largest number. The first number sets the width: 07-10 means
  // 07, 08, 09, 10.
  const std::size_t width = ends.front().size();
  for (std::uint64_t n = *first; n <= *last; ++n) hosts.push_back(fmt::format("{}{:0>{}}", prefix, n, width));
  return true;
}

/// FileStore locks the file at every use, so this lock needs another file.
std::string lock_path(const std::string& path) { return path + ".lock"; }

}  // namespace

// A file of an earlier job, which was killed, would let ranks meet the dead. The first rank of this job holds the lock
// alone and removes the file; all keep a shared lock, so no later rank takes itself for the first.
RendezvousFile::RendezvousFile(std::string path, bool removes) : path_(std::move(path)), removes_(removes) {
  lock_ = FileDescriptor(
      check_system(::open(lock_path(path_).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600), "make the rendezvous file"));
  const bool is_first = ::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0;
  if (is_first) std::filesystem::remove(path_);
  check_system(::flock(lock_.get(), LOCK_SH), "lock the rendezvous file");
}

RendezvousFile::~RendezvousFile() {
  std::error_code ignored;
  if (!removes_) return;
  std::filesystem::remove(path_, ignored);
  std::filesystem::remove(lock_path(path_), ignored);
}

std::vector<std::string> expand_hosts(const std::string& list) {
  // A name, ranges in a bracket, or both; then the end, or a comma and another entry.
  static const std::regex kEntry(R"((?=[^,])([^,\[\] ]*)(?:\[([^\[\]]+)\])?(?:,(?=.)|$))");
  std::vector<std::string> hosts;
  std::smatch entry;
  for (auto at = list.begin(); at != list.end(); at = entry[0].second) {
    if (!std::regex_search(at, list.end(), entry, kEntry, std::regex_constants::match_continuous)) refuse_nodes(list);
    const std::string ranges = entry[2];
    if (ranges.empty()) {
      hosts.push_back(entry[1]);
      continue;
    }
    for (const std::string_view range : split_at_commas(ranges))
      if (!add_range(entry[1], range, hosts)) refuse_nodes(list);
  }
  return hosts;
}

// From the most explicit to the least: a file or server that the user names, then a file if all ranks are on this host,
// which needs no open port, and last the address that SLURM's variables imply. On one host torchrun's store is not
// needed.
RendezvousPoint rendezvous_point(const RankPlace& place, const Variables& variables) {
  const std::string file = value_of(variables, kStoreVariable);
  if (!file.empty() && !place.on_one_host() && place.launcher != LauncherKind::Variables) {
    reject(
        "{} is a file, which only ranks of one host can use for rendezvous, but {} has started {} on several hosts; "
        "set MASTER_ADDR and MASTER_PORT instead",
        kStoreVariable, to_text(place.launcher), place.world_size);
  }
  const auto at_file = [&](const std::string& path, const std::string& name_of_path) {
    RendezvousPoint point = file_rendezvous(path);
    point.origin = describe_origin(place, fmt::format("{}, {}", path, name_of_path));
    return point;
  };
  if (!file.empty()) return at_file(file, std::string("the file in ") + kStoreVariable);
  const bool agent = value_of(variables, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  const std::string restart = value_of(variables, "TORCHELASTIC_RESTART_COUNT");
  auto server = given_server(variables);
  if (place.on_one_host() && (!server || agent)) {
    const LauncherProcess launcher = launcher_process(place);
    return at_file(
        own_folder() / fmt::format("rendezvous-{}-{}", launcher.key, restart),
        fmt::format("named after process {} ({}), which all ranks must descend from; if a wrapper of its own "
                    "starts each rank, give all one {}",
                    launcher.id, launcher.name, kStoreVariable));
  }
  if (!server && place.launcher == LauncherKind::Slurm) server = slurm_server(variables);
  if (!server) {
    reject(
        "{} has put {} of {} processes on this host, and no rendezvous address is set; set MASTER_ADDR to an address "
        "of rank 0's host and MASTER_PORT to a free port of that host",
        to_text(place.launcher), place.local_size, place.world_size);
  }
  server->is_agent = agent;
  server->listens = place.rank == 0 && !agent;
  server->secret = job_secret(variables);
  server->interface = value_of(variables, kInterfaceVariable);
  server->origin = describe_origin(place, fmt::format("{}:{}", server->host, server->port));
  server->attempt = value_of(variables, "TORCHELASTIC_RUN_ID") + "/" + restart;
  return *server;
}

}  // namespace chimera

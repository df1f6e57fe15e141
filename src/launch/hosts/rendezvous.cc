// Where the ranks of a job that another launcher started meet.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/error.h"
#include "core/parse_number.h"
#include "launch/local/environment.h"
#include "launch/local/place.h"
#include "rendezvous/secret.h"

namespace chimera {
namespace {

constexpr const char* kInterfaceVariable = "GLOO_SOCKET_IFNAME";  // c10d itself reads it in its Python half alone

std::string value_of(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Fields of /proc/PID/stat (proc(5)), from the process state on; empty where there is no such process.
std::vector<std::string> stat_of(pid_t process) {
  const std::string text = read_file(fmt::format("/proc/{}/stat", process));
  const auto name_end = text.rfind(") ");  // the name may hold anything
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 2));
  return {std::istream_iterator<std::string>(fields), {}};
}

/// Whether the process was started with this variable. One whose variables this user may not read is not ours.
bool started_with(pid_t process, const std::string& variable) {
  std::istringstream variables(read_file(fmt::format("/proc/{}/environ", process)));
  for (std::string each; std::getline(variables, each, '\0');) {
    if (each.starts_with(variable + "=")) return true;
  }
  return false;
}

/// The process that gave this one its rank, as all ranks of the host see it, scripts between them or not: number and
/// start time, which no other process has until the system is started anew.
std::string launcher_process(const RankPlace& place) {
  constexpr std::size_t kParent = 1;
  constexpr std::size_t kStartTime = 19;
  pid_t process = ::getppid();
  for (auto stat = stat_of(process); stat.size() > kStartTime; stat = stat_of(process)) {
    if (!started_with(process, rank_variable(place.launcher))) return fmt::format("{}-{}", process, stat[kStartTime]);
    process = std::stoi(stat[kParent]);
  }
  return fmt::format("{}", process);
}

/// A folder of this user alone.
std::filesystem::path own_folder() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error)
    throw Error("no folder for the ranks to meet in: " + error.message() + "; set TMPDIR to one that is there");
  const std::filesystem::path folder = parent / fmt::format("chimera-{}", ::getuid());
  ::mkdir(folder.c_str(), 0700);
  struct stat status {};
  const bool is_own = ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::getuid() &&
                      (status.st_mode & 077U) == 0;
  if (!is_own) {
    throw Error(fmt::format("'{}', where the ranks meet, is not a folder of this user alone; remove it, or set TMPDIR",
                            folder.string()));
  }
  return folder;
}

std::uint16_t port_of(const std::string& variable, const std::string& text) {
  const auto port = parse_number<std::uint16_t>(text);
  if (!port || *port == 0) throw ConfigError(fmt::format("{} is '{}'; expected a port, 1 .. 65535", variable, text));
  return *port;
}

/// What the variables say themselves; nothing where they do not.
std::optional<MeetingPoint> given_server(const Variables& variables) {
  for (const auto& [host, port] :
       {std::pair(kMasterAddressVariable, kMasterPortVariable), std::pair("MASTER_ADDR", "MASTER_PORT")}) {
    const std::string address = value_of(variables, host);
    const std::string number = value_of(variables, port);
    if (address.empty() != number.empty()) {
      throw ConfigError(fmt::format("{} is set but {} is not; set both, or none", address.empty() ? port : host,
                                    address.empty() ? host : port));
    }
    if (!address.empty()) return MeetingPoint{.host = address, .port = port_of(port, number)};
  }
  return std::nullopt;
}

/// What CHIMERA_SECRET says, or the file of CHIMERA_SECRET_FILE; empty where neither is set.
std::string job_secret(const Variables& variables) {
  const std::string file = value_of(variables, kSecretFileVariable);
  const std::string secret = value_of(variables, kSecretVariable);
  if (!file.empty() && !secret.empty()) {
    throw ConfigError(fmt::format("{} and {} are both set; set one", kSecretVariable, kSecretFileVariable));
  }
  return file.empty() ? secret : read_secret(file);
}

/// Of the step's own: its first node has rank 0; steps that run side by side have ports of their own.
MeetingPoint slurm_server(const Variables& variables) {
  constexpr unsigned long kFirstPort = 20000;  // below those that systems give to clients
  constexpr unsigned long kPorts = 10000;
  const auto nodes = expand_hosts(value_of(variables, "SLURM_STEP_NODELIST"));
  if (nodes.empty()) throw ConfigError("SLURM_STEP_NODELIST is not set; set MASTER_ADDR and MASTER_PORT");
  const auto number = [&](const char* name) { return std::strtoul(value_of(variables, name).c_str(), nullptr, 10); };
  const unsigned long port = kFirstPort + (number("SLURM_JOB_ID") * 16 + number("SLURM_STEP_ID")) % kPorts;
  return {.host = nodes.front(), .port = static_cast<std::uint16_t>(port)};
}

/// FileStore locks the file itself at every use, so the lock is a file beside it.
std::string lock_path(const std::string& path) { return path + ".lock"; }

}  // namespace

MeetingFile::MeetingFile(std::string path, bool removes) : path_(std::move(path)), removes_(removes) {
  lock_ = FileDescriptor(check_system(::open(lock_path(path_).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600),
                                      "make the file in which the ranks meet"));
  const bool is_first = ::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0;
  if (is_first) std::filesystem::remove(path_);
  check_system(::flock(lock_.get(), LOCK_SH), "lock the file in which the ranks meet");
}

MeetingFile::~MeetingFile() {
  std::error_code ignored;
  if (!removes_) return;
  std::filesystem::remove(path_, ignored);
  std::filesystem::remove(lock_path(path_), ignored);
}

std::vector<std::string> expand_hosts(const std::string& list) {
  std::vector<std::string> hosts;
  for (std::size_t at = 0; at < list.size();) {
    const auto comma = list.find(',', at);
    const auto open = list.find('[', at);
    if (open == std::string::npos || comma < open) {
      hosts.push_back(list.substr(at, comma - at));
      at = comma == std::string::npos ? list.size() : comma + 1;
      continue;
    }
    const auto close = list.find(']', open);
    if (close == std::string::npos)
      throw ConfigError(fmt::format("the node list '{}' has a bracket that does not close", list));
    const std::string prefix = list.substr(at, open - at);
    std::istringstream ranges(list.substr(open + 1, close - open - 1));
    for (std::string range; std::getline(ranges, range, ',');) {
      const auto dash = range.find('-');
      const std::string first = range.substr(0, dash);
      const long last = std::strtol(range.c_str() + (dash == std::string::npos ? 0 : dash + 1), nullptr, 10);
      for (long n = std::strtol(first.c_str(), nullptr, 10); n <= last; ++n) {
        hosts.push_back(fmt::format("{}{:0>{}}", prefix, n, first.size()));
      }
    }
    at = close + 1;
    if (at < list.size() && list[at++] != ',') {
      throw ConfigError(
          fmt::format("the node list '{}' goes on after a bracket; set MASTER_ADDR and MASTER_PORT", list));
    }
  }
  return hosts;
}

MeetingPoint meeting_point(const RankPlace& place, const Variables& variables) {
  const std::string file = value_of(variables, kStoreVariable);
  if (!file.empty() && !place.on_one_host() && place.launcher != LauncherKind::Variables) {
    throw ConfigError(
        fmt::format("{} is a file, where ranks of one host meet, but {} has started {} on several; set "
                    "MASTER_ADDR and MASTER_PORT instead",
                    kStoreVariable, to_text(place.launcher), place.world_size));
  }
  if (!file.empty()) return meeting_in_file(file);
  const bool agent = value_of(variables, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  const std::string restart = value_of(variables, "TORCHELASTIC_RESTART_COUNT");
  auto server = given_server(variables);
  if (place.on_one_host() && (!server || agent)) {
    return meeting_in_file(own_folder() / fmt::format("meeting-{}-{}", launcher_process(place), restart));
  }
  if (!server && place.launcher == LauncherKind::Slurm) server = slurm_server(variables);
  if (!server) {
    throw ConfigError(
        fmt::format("{} has put {} of {} processes on this host, and nothing says where they meet the others; set "
                    "MASTER_ADDR to an address of rank 0's host and MASTER_PORT to a free port of it",
                    to_text(place.launcher), place.local_size, place.world_size));
  }
  server->is_agent = agent;
  server->listens = place.rank == 0 && !agent;
  server->secret = job_secret(variables);
  server->interface = value_of(variables, kInterfaceVariable);
  server->attempt = value_of(variables, "TORCHELASTIC_RUN_ID") + "/" + restart;
  return *server;
}

}  // namespace chimera

#include "launch/hosts/hosts.h"

#include <algorithm>

#include "core/files.h"
#include "core/json.h"
#include "core/reject.h"
#include "core/shell_words.h"
#include "core/value_text.h"
#include "launch/local/launcher.h"
#include "launch/local/place.h"

namespace chimera {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostRanks, host, first, count)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AgentOrder, rank, world_size, arguments, variables, recovers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RemoteHost, ranks, address, program)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RemoteJob, hosts, spares, port, variables, typed, arguments)

namespace {

/// A colon separates the number of ranks, unless the word is an IPv6 address: it has more colons, or brackets.
HostRanks parse_host(std::string_view word, int otherwise, const char* flag) {
  HostRanks ranks{.host = std::string(word), .count = otherwise};
  const auto colon = word.rfind(':');
  const bool is_bare_address = colon != std::string_view::npos && !word.starts_with('[') && word.find(':') != colon;
  const bool ends_in_bracket = word.ends_with(']');
  if (colon != std::string_view::npos && !is_bare_address && !ends_in_bracket) {
    const auto count = parse_number<int>(std::string(word.substr(colon + 1)));
    if (!count || *count < 1 || *count > kMaxRanksOfHost) {
      reject("{}: '{}' has no number of ranks after its colon; expected HOST:N, N from 1 to {}", flag, word,
             kMaxRanksOfHost);
    }
    ranks.host = word.substr(0, colon);
    ranks.count = *count;
  }
  if (ranks.host.starts_with('[') && ranks.host.ends_with(']'))
    ranks.host = ranks.host.substr(1, ranks.host.size() - 2);
  // ssh would take a leading dash as an option; SLURM uses brackets for lists.
  if (ranks.host.empty() || ranks.host.starts_with('-') || ranks.host.find_first_of("[] ") != std::string::npos)
    reject("{}: '{}' names no host; expected a list as in a,b:4", flag, word);
  return ranks;
}

/// Settings of the user go to all hosts. The place of a rank and the secret are set for each attempt, so a value that
/// this process has inherited must not leak into them.
bool is_for_others(std::string_view name) {
  constexpr std::array kPrefixes = {"CHIMERA_", "OMP_",   "MKL_",     "KMP_", "GLOO_",
                                    "NCCL_",    "TORCH_", "PYTORCH_", "CUDA_"};
  const std::array own = {kRankVariable,       kWorldSizeVariable,     kLocalRankVariable,  kLocalSizeVariable,
                          kStoreVariable,      kMasterAddressVariable, kMasterPortVariable, kSecretVariable,
                          kSecretFileVariable, kStartVariable,         kRemoteVariable};
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); }) &&
         std::ranges::none_of(own, [&](std::string_view each) { return name == each; });
}

}  // namespace

std::vector<HostRanks> parse_hosts(std::string_view list, int otherwise, const char* flag) {
  std::vector<HostRanks> hosts;
  int first = 0;
  for (const std::string_view word : split_at_commas(list)) {
    HostRanks ranks = parse_host(word, otherwise, flag);
    ranks.first = first;
    first += ranks.count;
    const auto same = [&](const HostRanks& other) { return other.host == ranks.host; };
    if (std::ranges::any_of(hosts, same))
      reject("{} has '{}' twice; give it once, with all its ranks", flag, ranks.host);
    hosts.push_back(std::move(ranks));
  }
  return hosts;
}

std::string to_text(const HostRanks& ranks) {
  if (ranks.count == 1) return fmt::format("rank {} on {}", ranks.first, ranks.host);
  return fmt::format("ranks {} .. {} on {}", ranks.first, ranks.first + ranks.count - 1, ranks.host);
}

std::string to_line(const AgentOrder& order) { return json_text(nlohmann::json(order), -1, JsonEncoding::Ascii); }

AgentOrder parse_order(const std::string& line) {
  try {
    return read_json(line).get<AgentOrder>();
  } catch (const nlohmann::json::exception&) {
    reject("--agent is internal to `chimera launch`, which sends the job on standard input");
  }
}

std::vector<std::string> command_on(const RemoteHost& host, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = host.program;
  words.back() += " " + shell_words(arguments);  // The last word is a line for the host's shell
  return words;
}

const RemoteHost& RemoteJob::host_of(int rank) const {
  // Hosts are in rank order, so the first host that ends behind the rank has it.
  const auto has = [rank](const RemoteHost& host) { return rank < host.ranks.first + host.ranks.count; };
  return *std::ranges::find_if(hosts, has);
}

std::string to_text(const RemoteJob& job) { return json_text(nlohmann::json(job), -1, JsonEncoding::Ascii); }

RemoteJob read_remote_job(const std::string& path) {
  try {
    return read_json(read_whole(path)).get<RemoteJob>();
  } catch (const nlohmann::json::exception&) {
    reject("{} is internal to `chimera launch`; unset it", kRemoteVariable);
  }
}

Variables variables_for_others() {
  Variables variables = own_variables();
  std::erase_if(variables, [](const auto& each) { return !is_for_others(each.first); });
  return variables;
}

}  // namespace chimera

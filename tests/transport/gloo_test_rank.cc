// One rank of gloo_transport_test: gloo_test_rank PART RANK WORLD_SIZE STORE_PATH START_UP_MILLISECONDS
//
// Exit codes: 0 success; 1 broken contract; 3 PeerLostError; 4 another TransportError.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "contract.h"
#include "core/console.h"
#include "core/error.h"
#include "core/fault_point.h"
#include "core/shared_memory.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera {
namespace {

const RankId kZero(0), kOne(1);
const TensorSpec kSmall{.sizes = {2}, .dtype = at::kFloat};

/// Throws if a socket of this process accepts connections from other hosts.
void expect_loopback_listeners_only() {
  int num_listening = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    int listening = 0;
    socklen_t size = sizeof listening;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0) continue;
    ++num_listening;
    sockaddr_in address{};
    size = sizeof address;
    ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
    if (address.sin_family != AF_INET || address.sin_addr.s_addr != htonl(INADDR_LOOPBACK)) {
      throw std::runtime_error("a socket listens beyond the loopback address");
    }
  }
  if (num_listening == 0) throw std::runtime_error("found no listening socket to look at");
}

void contract_part(Transport& transport, RankId me) {
  expect_loopback_listeners_only();
  for (const auto& scenario : contract::scenarios()) {
    try {
      scenario.play(transport, me);
    } catch (const std::exception& error) {
      throw std::runtime_error(scenario.name + ": " + error.what());
    }
  }
}

/// Rank 1 dies once rank 0 has begun the operation that it then waits for.
void die_on_message(Transport& transport) {
  transport.post_receive(kZero, kSmall, {})->wait();
  ::raise(SIGKILL);
}

void lose_receive(Transport& transport, RankId me) {
  if (me == kOne) die_on_message(transport);
  auto receive = transport.post_receive(kOne, kSmall, {});
  transport.start_send(kOne, at::ones({2}), {})->wait();
  receive->wait();
}

void lose_send(Transport& transport, RankId me) {
  if (me == kOne) die_on_message(transport);
  auto send = transport.start_send(kOne, at::ones({2}), {});
  auto never_received = transport.start_send(kOne, at::ones({2}), {});
  send->wait();
  never_received->wait();
}

void lose_all_reduce(Transport& transport, RankId me) {
  if (me == kOne) die_on_message(transport);
  auto sum = transport.start_all_reduce(ParameterGroupId(0), at::ones({1000}));
  transport.start_send(kOne, at::ones({2}), {})->wait();
  sum->wait();
}

void lose_all_sum(Transport& transport, RankId me) {
  if (me == kOne) die_on_message(transport);
  transport.start_send(kOne, at::ones({2}), {})->wait();
  std::array<double, 1> value{1.0};
  transport.all_sum(value);
}

/// Memory files that this process has mapped.
std::int64_t mapped_files() {
  std::ifstream maps("/proc/self/maps");
  std::int64_t files = 0;
  for (std::string line; std::getline(maps, line);) files += line.find("memfd:chimera") != std::string::npos;
  return files;
}

/// Both ranks contribute; CHIMERA_FAULT decides what happens during the all-reduce.
void sum_in_shared_memory(Transport& transport, RankId) {
  const at::Tensor sum = transport.start_all_reduce(ParameterGroupId(0), at::ones({1000}))->wait();
  if (!at::equal(sum, at::full({1000}, 2.0))) throw std::runtime_error("took an incomplete sum");
}

/// Four ranks on two hosts contribute; CHIMERA_FAULT decides what happens during the all-reduce.
void sum_on_two_hosts(Transport& transport, RankId) {
  const at::Tensor sum = transport.start_all_reduce(ParameterGroupId(2), at::ones({1000}))->wait();
  if (!at::equal(sum, at::full({1000}, 4.0))) throw std::runtime_error("took an incomplete sum");
  if (mapped_files() == 0) throw std::runtime_error("nothing was added in shared memory");
}

/// Rank 0 contributes after the other rank of its host. It then sends a message that the other host needs before it
/// contributes.
void go_on_beside_a_sum_on_two_hosts(Transport& transport, RankId me) {
  const RankId host_mate(1), other_host(2);
  if (me == kZero) transport.post_receive(host_mate, kSmall, {})->wait();
  if (me == other_host) transport.post_receive(kZero, kSmall, {})->wait();
  const auto sum = transport.start_all_reduce(ParameterGroupId(2), at::ones({1000}));
  if (me == host_mate) transport.start_send(kZero, at::ones({2}), {})->wait();
  if (me == kZero) transport.start_send(other_host, at::ones({2}), {})->wait();
  if (!at::equal(sum->wait(), at::full({1000}, 4.0))) throw std::runtime_error("took an incomplete sum");
}

/// Rank 1 has no file descriptor left to map rank 0's memory.
void fail_to_map(Transport& transport, RankId me) {
  const SharedMemory memory(8000);  // allocated before the limit
  const at::Tensor gradients = at::from_blob(memory.data(), {1000}, at::kDouble);
  if (me == kOne) {
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NOFILE, &none) != 0) throw std::runtime_error("cannot set the limit");
  }
  transport.start_all_reduce(ParameterGroupId(0), gradients)->wait();
}

/// Rank 1 dies during a large all-reduce.
void die_in_sum_over_sockets(Transport& transport, RankId me) {
  constexpr std::int64_t kElements = 16 << 20;
  auto pending = transport.start_all_reduce(ParameterGroupId(0), at::ones({kElements}));
  if (me == kOne) ::raise(SIGKILL);
  if (!at::equal(pending->wait(), at::full({kElements}, 2.0))) throw std::runtime_error("took an incomplete sum");
}

/// Tensors outside of shared memory are all-reduced through files that are reused.
void map_few_files(Transport& transport, RankId) {
  const auto sum_some = [&](int sums) {
    for (int i = 0; i < sums; ++i) {
      const at::Tensor gradients = at::full({1000 + i % 3}, 1.0);
      if (transport.start_all_reduce(ParameterGroupId(0), gradients)->wait()[7].item<double>() != 2) {
        throw std::runtime_error("a sum is wrong");
      }
    }
  };
  sum_some(3);
  const std::int64_t before = mapped_files();
  if (before == 0) throw std::runtime_error("the sums were formed elsewhere");
  sum_some(100);
  if (mapped_files() != before) throw std::runtime_error(fmt::format("{} files, then {}", before, mapped_files()));
}

/// Rank 1 fails while rank 0 waits for it; the destructor must not wait for rank 0.
void fail_alone(Transport& transport, RankId me) {
  if (me == kOne) throw std::runtime_error("rank 1 has its own reasons");
  transport.post_receive(kOne, kSmall, {})->wait();
}

/// Rank 0 has a time limit (see run); rank 1 does not.
void wait_for_each_other(Transport& transport, RankId me) {
  transport.post_receive(me == kOne ? kZero : kOne, kSmall, {})->wait();
}

/// Rank 1 sends the messages of micro-batches 0 and 1 in the wrong order.
void swap_messages(Transport& transport, RankId me) {
  const auto tag = [](std::int64_t micro_batch) {
    return MessageTag{3, {OpKind::Forward, ReplicaId(0), StageId(1), MicroBatchId(micro_batch)}};
  };
  if (me == kOne) {
    auto early = transport.start_send(kZero, at::ones({2}), tag(1));
    auto late = transport.start_send(kZero, at::ones({2}), tag(0));
    early->wait();
    late->wait();
    return;
  }
  auto first = transport.post_receive(kOne, kSmall, tag(0));
  auto second = transport.post_receive(kOne, kSmall, tag(1));
  first->wait();
}

RankGroups groups_of(const std::string& part, int world_size) {
  if (part == "outlive") return {{kOne, RankId(2)}, {kZero, kOne, RankId(2)}};
  return world_size == contract::kWorkers ? contract::groups() : RankGroups{{kZero, kOne}};
}

void play(const std::string& part, Transport& transport, RankId me) {
  static const std::map<std::string, std::function<void(Transport&, RankId)>> kParts{
      {"contract", contract_part},
      {"contract_over_sockets", contract_part},
      {"contract_on_two_hosts", contract_part},
      {"join", [](Transport&, RankId) {}},
      {"lose_receive", lose_receive},
      {"lose_send", lose_send},
      {"lose_all_reduce", lose_all_reduce},
      {"lose_all_sum", lose_all_sum},
      {"sum_in_shared_memory", sum_in_shared_memory},
      {"sum_on_two_hosts", sum_on_two_hosts},
      {"go_on_beside_a_sum_on_two_hosts", go_on_beside_a_sum_on_two_hosts},
      {"fail_to_map", fail_to_map},
      {"die_in_sum_over_sockets", die_in_sum_over_sockets},
      {"map_few_files", map_few_files},
      {"fail_alone", fail_alone},
      {"time_out", wait_for_each_other},
      {"swap_messages", swap_messages},
  };
  kParts.at(part)(transport, me);
}

/// Starts every kind of operation, and waits for operations that never end until the breaker interrupts them.
void wait_until_broken(Transport& transport, RankId me, ConnectionBreaker& breaker) {
  const SharedMemory memory(8000);
  const at::Tensor gradients = at::from_blob(memory.data(), {1000}, at::kDouble);
  const RankId next((me.value() + 1) % 3);
  const RankId before((me.value() + 2) % 3);
  auto sent = transport.start_send(next, at::ones({1 << 20}), {});  // larger than socket buffers
  auto sum = me == kZero ? nullptr : transport.start_all_reduce(ParameterGroupId(0), gradients);
  auto awaited = transport.post_receive(before, {.sizes = {1 << 20}, .dtype = at::kFloat}, {});
  auto never = transport.post_receive(before, kSmall, {});
  const std::jthread breaking([&](const std::stop_token& stopped) {
    while (!stopped.stop_requested()) breaker.break_all();
  });
  try {
    if (me == kOne) {  // rank 2 takes part only in the first all-reduce
      sum->wait();
      sum = transport.start_all_reduce(ParameterGroupId(0), gradients);
      sum->wait();
    }
    awaited->wait();
    never->wait();
  } catch (const PeerLostError&) {
    return;
  }
  throw std::runtime_error("a message came that nobody had sent");
}

/// All ranks repeatedly lose each other and reconnect. Each rendezvous uses its own file.
void outlive(GlooOptions options) {
  ::signal(SIGPIPE, SIG_IGN);
  options.breaker = std::make_shared<ConnectionBreaker>();
  const std::string folder = options.rendezvous.file;
  for (int generation = 0; generation < 12; ++generation) {
    options.rendezvous.file = fmt::format("{}/{}", folder, generation);
    try {
      const auto transport = connect_gloo(options);
      std::array<double, 1> ranks{1};
      transport->all_sum(ranks);
      if (ranks[0] != options.world_size) throw std::runtime_error("an old message was taken for a new one");
      wait_until_broken(*transport, RankId(options.rank), *options.breaker);
      throw PeerLostError("as intended");
    } catch (const PeerLostError&) {
    }
    options.breaker->reset();
  }
}

int run(const std::vector<std::string>& arguments) {
  const RankId me(std::stoi(arguments.at(2)));
  const int world_size = std::stoi(arguments.at(3));
  const bool impatient = arguments.at(1) == "time_out" && me == kZero;
  const GlooOptions options{
      .rank = static_cast<int>(me.value()),
      .world_size = world_size,
      .rendezvous = file_rendezvous(arguments.at(4)),
      .timeout = impatient ? std::chrono::milliseconds(50) : std::chrono::minutes(1),
      .start_up_timeout = std::chrono::milliseconds(std::stoi(arguments.at(5))),
      .groups = groups_of(arguments.at(1), world_size),
      .share_memory = !arguments.at(1).ends_with("over_sockets"),
      .hosts = arguments.at(1).ends_with("on_two_hosts") ? std::vector{0, 0, 1, 1} : std::vector<int>{},
  };
  at::set_num_threads(1);
  fault_rank() = options.rank;
  try {
    if (arguments.at(1) == "outlive") {
      outlive(options);
      return 0;
    }
    const auto transport = connect_gloo(options);
    play(arguments.at(1), *transport, me);
    return 0;
  } catch (const PeerLostError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 3;
  } catch (const TransportError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 4;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace chimera

int main(int count, char** arguments) {
  chimera::exit_now(chimera::run({arguments, arguments + count}), chimera::kDrainAfterFailure);
}

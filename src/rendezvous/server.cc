#include "rendezvous/server.h"

#include <sys/socket.h>

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/choices.h"
#include "core/signals.h"
#include "rendezvous/address.h"

// A request passes four layers: RendezvousClient::ask() encodes it, RendezvousServer::serve() reads it from an
// authenticated Channel, one thread per client, and KeyValueStore::answer() executes it, perhaps after a wait for other
// ranks. Everything that comes from a socket is checked by read_request(): any host can reach the port.

namespace chimera {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 7);  // upper limit of --rendezvous-seconds

/// Rejects other numbers, because their conversion may overflow.
std::int64_t integer_of(const Json& json) {
  if (!json.is_number_integer()) throw ChannelError("not a rendezvous message");
  return json.get<std::int64_t>();
}

std::string as_bytes(const Json& json) {
  std::string bytes;
  Json::to_cbor(json, bytes);
  return bytes;
}

template <class Read>
auto read_array(std::string_view bytes, std::size_t size, Read&& read) {
  try {
    const Json json = Json::from_cbor(bytes);
    if (json.is_array() && json.size() == size) return read(json);
  } catch (const Json::exception&) {
  }
  throw ChannelError("not a rendezvous message");
}

constexpr std::chrono::milliseconds kPause{50};      // between connection attempts
constexpr std::chrono::milliseconds kAttempt{2000};  // for the connection of an attempt: a host that is down is silent

/// Connects and authenticates. Retries, because ranks start in any order: rank 0 may not listen yet.
Channel greeted(const RendezvousPoint& rendezvous, std::chrono::milliseconds timeout,
                const std::function<bool()>& gives_up) {
  const Deadline deadline = deadline_after(timeout);
  std::string reason;
  while (true) {
    if (gives_up && gives_up()) throw PeerLostError("another rank was lost before all ranks had joined");
    try {
      Channel channel(connect_to(rendezvous, std::min(deadline, deadline_after(kAttempt))));
      authenticate_as_client(channel, rendezvous.secret, deadline);
      return channel;
    } catch (const ChannelError& error) {
      reason = error.what();
    }
    if (std::chrono::steady_clock::now() + kPause >= deadline) break;
    std::this_thread::sleep_for(kPause);
  }
  throw TransportError(
      fmt::format("no answer from the rendezvous server at {} within {:g} s; rank 0 has not started it, or another "
                  "program has the port ({})",
                  server_name(rendezvous), std::chrono::duration<double>(timeout).count(), reason));
}

constexpr std::chrono::milliseconds kSendTime{10'000};  // for an answer

}  // namespace

std::string to_bytes(const Request& request) {
  // CBOR carries any bytes in a text.
  return as_bytes(Json::array(
      {static_cast<int>(request.kind), request.names, request.value, request.number, request.timeout.count()}));
}

std::string to_bytes(const Answer& answer) {
  return as_bytes(Json::array({answer.is_there, answer.value, answer.number}));
}

// Every field is checked, because the bytes come from another host, before or after its proof.
Request read_request(std::string_view bytes) {
  return read_array(bytes, 5, [](const Json& json) {
    const std::int64_t kind = integer_of(json[0]);
    if (kind < 0 || kind > static_cast<int>(RequestKind::Count)) throw ChannelError("not a rendezvous request");
    Request request{.kind = static_cast<RequestKind>(kind)};
    request.names = json[1].get<std::vector<std::string>>();
    // The store must not read a name that the request does not have.
    if (request.names.empty() && request.kind != RequestKind::Count) throw ChannelError("a request without a name");
    request.value = json[2].get<std::string>();
    request.number = integer_of(json[3]);
    request.timeout = std::chrono::milliseconds(std::clamp<std::int64_t>(integer_of(json[4]), 0, kLongestWait.count()));
    return request;
  });
}

Answer read_answer(std::string_view bytes) {
  return read_array(bytes, 3, [](const Json& json) {
    return Answer{.is_there = json[0].get<bool>(), .value = json[1].get<std::string>(), .number = integer_of(json[2])};
  });
}

Answer KeyValueStore::answer(const Request& request) {
  std::unique_lock lock(mutex_);
  const auto has_all = [&] {
    return std::ranges::all_of(request.names, [&](const std::string& name) { return values_.contains(name); });
  };
  switch (request.kind) {
    case RequestKind::Set:
      values_[request.names.front()] = request.value;
      changed_.notify_all();
      return {.is_there = true};
    case RequestKind::Add: {
      std::string& value = values_[request.names.front()];
      // Overflow wraps around: a hostile client must not cause undefined behavior.
      const auto old = static_cast<std::uint64_t>(parse_number<std::int64_t>(value).value_or(0));
      const auto sum = static_cast<std::int64_t>(old + static_cast<std::uint64_t>(request.number));
      value = std::to_string(sum);
      changed_.notify_all();
      return {.is_there = true, .number = sum};
    }
    case RequestKind::Remove: return {.is_there = values_.erase(request.names.front()) > 0};
    case RequestKind::Count: return {.is_there = true, .number = static_cast<std::int64_t>(values_.size())};
    case RequestKind::Get:
      changed_.wait_until(lock, deadline_after(request.timeout), [&] { return stopped_ || has_all(); });
      // The wait also ends by timeout or stop().
      if (!has_all()) return {};
      return {.is_there = true, .value = values_[request.names.front()]};
  }
  return {};
}

void KeyValueStore::stop() {
  const std::scoped_lock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

RendezvousClient::RendezvousClient(const RendezvousPoint& rendezvous, std::chrono::milliseconds timeout,
                                   const std::function<bool()>& gives_up)
    : channel_(greeted(rendezvous, timeout, gives_up)) {}

// One request at a time: c10d uses a store from several threads, and answers carry no number of their request.
Answer RendezvousClient::ask(const Request& request) {
  const std::scoped_lock lock(mutex_);
  const Deadline deadline = deadline_after(request.timeout + kAnswerTime);
  try {
    channel_.send(to_bytes(request), deadline);
    if (const auto message = channel_.receive(deadline)) return read_answer(*message);
  } catch (const ChannelError&) {
  }
  throw PeerLostError("the rendezvous server has ended, and rank 0 with it");
}

RendezvousServer::RendezvousServer(FileDescriptor listener, std::string secret)
    : listener_(std::move(listener)), secret_(std::move(secret)) {
  const SignalBlocker none;
  thread_ = std::thread([this] { listen(); });
}

// Order: no new clients, no waits in the store, no reads from sockets; then every thread ends by itself.
RendezvousServer::~RendezvousServer() {
  stop_listening();
  // Wakes the threads that wait for a key; otherwise the joins below would wait as long as they do.
  store_.stop();
  {
    const std::scoped_lock lock(mutex_);
    for (Connection& connection : connections_) connection.channel.close();
  }
  for (Connection& connection : connections_) connection.thread.join();
}

// A joined thread accepts no more clients, so the descriptor can be closed without a race.
void RendezvousServer::stop_listening() {
  ::shutdown(listener_.get(), SHUT_RDWR);  // wakes accept4()
  if (thread_.joinable()) thread_.join();
  listener_ = FileDescriptor();
}

void RendezvousServer::listen() {
  while (true) {
    FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.get() < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until descriptors or memory are released
      continue;
    }
    const std::scoped_lock lock(mutex_);
    // Strangers who come and go leave no threads behind, and those who stay are limited: refused ranks try again.
    std::erase_if(connections_, [](Connection& each) {
      if (each.has_ended) each.thread.join();  // it has nothing left to do
      return each.has_ended;
    });
    const auto is_stranger = [](const Connection& each) { return !each.is_trusted; };
    if (std::ranges::count_if(connections_, is_stranger) >= kMaxUnauthenticated) continue;
    // The list keeps the place of its elements, which their threads refer to.
    Connection& connection = connections_.emplace_back(std::move(socket));
    connection.thread = std::thread([this, &connection] { serve(connection); });
  }
}

// Any fault of the client ends only its own connection: the port is open to every host.
void RendezvousServer::serve(Connection& connection) {
  try {
    Channel& channel = connection.channel;
    authenticate_as_server(channel, secret_, deadline_after(kProofTime));
    {
      const std::scoped_lock lock(mutex_);
      connection.is_trusted = true;
    }
    // A client keeps its connection for the whole job and may be silent for long.
    while (const auto message = channel.receive(Deadline::max()))
      channel.send(to_bytes(store_.answer(read_request(*message))), deadline_after(kSendTime));
  } catch (const Error&) {  // the client sees the end of the connection
  }
  connection.channel.close();
  const std::scoped_lock lock(mutex_);
  connection.has_ended = true;
}

}  // namespace chimera

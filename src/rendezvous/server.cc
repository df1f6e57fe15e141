#include "rendezvous/server.h"

#include <sys/socket.h>

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/signals.h"
#include "rendezvous/address.h"

namespace chimera {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 7);  // upper limit of --rendezvous-seconds

Json binary(const std::string& text) { return Json::binary({text.begin(), text.end()}); }

std::string text_of(const Json& json) {
  const auto& bytes = json.get_binary();
  return {bytes.begin(), bytes.end()};
}

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

std::size_t fewest_names(RequestKind kind) {
  return kind == RequestKind::Count || kind == RequestKind::Check || kind == RequestKind::Wait ? 0 : 1;
}

constexpr std::chrono::milliseconds kPause{50};  // between connection attempts

Channel greeted(const RendezvousPoint& rendezvous, std::chrono::milliseconds timeout) {
  const Deadline deadline = after(timeout);
  std::string reason;
  while (true) {
    try {
      Channel channel(connect_to(rendezvous, deadline));
      greet_as_client(channel, rendezvous.secret, deadline);
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
                  place_of(rendezvous), std::chrono::duration<double>(timeout).count(), reason));
}

constexpr std::chrono::milliseconds kSendTime{10'000};  // for an answer

}  // namespace

std::string to_bytes(const Request& request) {
  Json names = Json::array();
  for (const std::string& name : request.names) names.push_back(binary(name));
  return as_bytes(Json::array({static_cast<int>(request.kind), std::move(names), binary(request.value), request.number,
                               request.timeout.count()}));
}

std::string to_bytes(const Answer& answer) {
  return as_bytes(Json::array({answer.is_there, binary(answer.value), answer.number}));
}

Request read_request(std::string_view bytes) {
  return read_array(bytes, 5, [](const Json& json) {
    const std::int64_t kind = integer_of(json[0]);
    if (kind < 0 || kind > static_cast<int>(RequestKind::Wait)) throw ChannelError("not a rendezvous request");
    Request request{.kind = static_cast<RequestKind>(kind)};
    if (!json[1].is_array()) throw ChannelError("not a rendezvous request");
    for (const Json& name : json[1]) request.names.push_back(text_of(name));
    if (request.names.size() < fewest_names(request.kind)) throw ChannelError("a request without a name");
    request.value = text_of(json[2]);
    request.number = integer_of(json[3]);
    request.timeout = std::chrono::milliseconds(std::clamp<std::int64_t>(integer_of(json[4]), 0, kLongestWait.count()));
    return request;
  });
}

Answer read_answer(std::string_view bytes) {
  return read_array(bytes, 3, [](const Json& json) {
    return Answer{.is_there = json[0].get<bool>(), .value = text_of(json[1]), .number = integer_of(json[2])};
  });
}

Answer answer(KeyValueStore& words, const Request& request) {
  switch (request.kind) {
    case RequestKind::Set: words.set(request.names.front(), request.value); return {.is_there = true};
    case RequestKind::Get: {
      if (!words.wait({request.names.front()}, after(request.timeout))) return {};
      return {.is_there = true, .value = words.find(request.names.front()).value_or("")};
    }
    case RequestKind::Add: return {.is_there = true, .number = words.add(request.names.front(), request.number)};
    case RequestKind::Remove: return {.is_there = words.remove(request.names.front())};
    case RequestKind::Count: return {.is_there = true, .number = words.count()};
    case RequestKind::Check: return {.is_there = words.has_all(request.names)};
    case RequestKind::Wait: return {.is_there = words.wait(request.names, after(request.timeout))};
  }
  return {};
}

RendezvousClient::RendezvousClient(const RendezvousPoint& rendezvous, std::chrono::milliseconds timeout)
    : channel_(greeted(rendezvous, timeout)) {}

Answer RendezvousClient::ask(const Request& request) {
  const std::scoped_lock lock(mutex_);
  const Deadline deadline = after(request.timeout + kAnswerTime);
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

RendezvousServer::~RendezvousServer() {
  stop_listening();
  words_.stop();
  {
    const std::scoped_lock lock(mutex_);
    for (Connection& connection : connections_) connection.channel.close();
  }
  for (Connection& connection : connections_) connection.thread.join();
}

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
    forget_ended();
    if (full()) continue;
    const std::scoped_lock lock(mutex_);
    Connection& connection = connections_.emplace_back(std::move(socket));
    connection.thread = std::thread([this, &connection] { serve(connection); });
  }
}

bool RendezvousServer::full() {
  const std::scoped_lock lock(mutex_);
  return std::ranges::count_if(connections_, [](const Connection& each) { return !each.is_trusted; }) >= kMostStrangers;
}

void RendezvousServer::forget_ended() {
  const std::scoped_lock lock(mutex_);
  for (auto each = connections_.begin(); each != connections_.end();) {
    if (!each->has_ended) {
      ++each;
      continue;
    }
    each->thread.join();  // it has nothing left to do
    each = connections_.erase(each);
  }
}

void RendezvousServer::serve(Connection& connection) {
  try {
    Channel& channel = connection.channel;
    greet_as_server(channel, secret_, after(kProofTime));
    {
      const std::scoped_lock lock(mutex_);
      connection.is_trusted = true;
    }
    while (const auto message = channel.receive(Deadline::max())) {
      channel.send(to_bytes(answer(words_, read_request(*message))), after(kSendTime));
    }
  } catch (const Error&) {  // the client sees the end of the connection
  }
  connection.channel.close();
  const std::scoped_lock lock(mutex_);
  connection.has_ended = true;
}

}  // namespace chimera

#include "transport/gloo/meeting_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "transport/gloo/breakable_store.h"

namespace chimera {
namespace {

std::string place_of(const MeetingPoint& meeting) { return fmt::format("{}:{}", meeting.host, meeting.port); }

/// A socket of `type` that `use` is content with, on the first of the meeting's addresses where one is. Throws
/// TransportError with what the last one lacked.
FileDescriptor open_socket(const MeetingPoint& meeting, int type, const char* what,
                           const std::function<bool(int socket, const addrinfo& address)>& use) {
  addrinfo hints{};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(meeting.host.c_str(), std::to_string(meeting.port).c_str(), &hints, &found);
  if (error != 0) {
    throw TransportError(fmt::format("the ranks cannot meet at {}: {}", place_of(meeting), ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  std::string reason;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    FileDescriptor socket(::socket(address->ai_family, type | SOCK_CLOEXEC, 0));
    if (socket.get() >= 0 && use(socket.get(), *address)) return socket;
    reason = std::strerror(errno);
  }
  throw TransportError(fmt::format("cannot {} {}: {}", what, place_of(meeting), reason));
}

/// TCPStore itself would listen at every address of the host.
FileDescriptor listen_at(const MeetingPoint& meeting) {
  return open_socket(
      meeting, SOCK_STREAM, "listen, for the ranks to meet, at", [](int socket, const addrinfo& address) {
        const int on = 1;
        ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        return ::bind(socket, address.ai_addr, address.ai_addrlen) == 0 && ::listen(socket, SOMAXCONN) == 0;
      });
}

c10::intrusive_ptr<c10d::Store> connect_tcp(const MeetingPoint& meeting, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = meeting.port;
  options.isServer = meeting.listens;
  options.waitWorkers = false;
  options.timeout = timeout;
  if (meeting.listens) {
    options.masterListenFd = listen_at(meeting).release();  // the server's from now on
  }
  // TCPStore's own limit does not hold where something else listens and says nothing. Then the thread waits on, until
  // the process ends.
  std::packaged_task<c10::intrusive_ptr<c10d::Store>()> connecting(
      [host = meeting.host, options] { return c10::make_intrusive<c10d::TCPStore>(host, options); });
  auto connected = connecting.get_future();
  std::thread(std::move(connecting)).detach();
  const auto no_answer = [&] {
    return TransportError(
        fmt::format("no answer from {}, where the ranks meet, within {:g} s; rank 0 answers there once it "
                    "has started, unless another program has the port",
                    place_of(meeting), std::chrono::duration<double>(timeout).count()));
  };
  if (connected.wait_for(timeout + std::chrono::seconds(1)) != std::future_status::ready) throw no_answer();
  try {
    return c10::make_intrusive<c10d::PrefixStore>("chimera/" + meeting.attempt, connected.get());
  } catch (const std::exception&) {
    throw no_answer();
  }
}

std::string key_of(int rank) { return fmt::format("rank {}", rank); }

std::vector<int> missing_of(c10d::Store& store, int world_size) {
  std::vector<int> missing;
  try {
    for (int rank = 0; rank < world_size; ++rank) {
      if (!store.check({key_of(rank)})) missing.push_back(rank);
    }
  } catch (const std::exception&) {
    throw PeerLostError("the server at which the ranks meet is gone, and rank 0 with it");
  }
  return missing;
}

}  // namespace

MeetingStore::MeetingStore(const MeetingPoint& meeting, std::chrono::milliseconds timeout,
                           const std::shared_ptr<ConnectionBreaker>& breaker)
    : meeting_(meeting) {
  if (meeting.host.empty()) {
    file_ = std::make_unique<StoreFile>(meeting.file);
    store_ = c10::make_intrusive<c10d::FileStore>(file_->path(), /*num_workers=*/-1);
    store_->setTimeout(timeout);
  } else {
    static_cast<void>(own_address());  // says so where the name is unknown
    store_ = connect_tcp(meeting, timeout);
  }
  if (breaker) store_ = breakable_store(store_, breaker);
}

void MeetingStore::await_all(int rank, int world_size) {
  store_->set(key_of(rank), std::vector<std::uint8_t>{1});
  std::vector<std::string> keys;
  for (int each = 0; each < world_size; ++each) keys.push_back(key_of(each));
  try {
    store_->wait(keys);
  } catch (const std::exception&) {
    const std::vector<int> missing = missing_of(*store_, world_size);
    throw TransportError(fmt::format("{} of {} ranks have not come within {:g} s: {}", missing.size(), world_size,
                                     std::chrono::duration<double>(store_->getTimeout()).count(),
                                     fmt::join(missing, ", ")));
  }
}

std::string MeetingStore::own_address() const {
  if (meeting_.host.empty()) return "";
  // To connect a datagram socket sends nothing: it looks up the route.
  const FileDescriptor socket = open_socket(
      meeting_, SOCK_DGRAM, "find a way to",
      [](int each, const addrinfo& address) { return ::connect(each, address.ai_addr, address.ai_addrlen) == 0; });
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  std::array<char, NI_MAXHOST> text{};
  auto* address = reinterpret_cast<sockaddr*>(&own);
  if (::getsockname(socket.get(), address, &size) != 0 ||
      ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    throw TransportError(fmt::format("cannot find this host's address towards {}", place_of(meeting_)));
  }
  return text.data();
}

void MeetingStore::abandon() noexcept {
  store_.release();
  if (file_) file_->abandon();
}

}  // namespace chimera

#include "rendezvous/server.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "core/no_signals.h"
#include "rendezvous/request.h"

namespace chimera {
namespace {

constexpr std::chrono::milliseconds kSendTime{10'000};  // in which a rank takes its answer

}  // namespace

MeetingServer::MeetingServer(FileDescriptor listener, std::string secret)
    : listener_(std::move(listener)), secret_(std::move(secret)) {
  const NoSignals none;
  thread_ = std::thread([this] { listen(); });
}

MeetingServer::~MeetingServer() {
  stop_listening();
  words_.stop();
  {
    const std::scoped_lock lock(mutex_);
    for (Connection& connection : connections_) connection.channel.close();
  }
  for (Connection& connection : connections_) connection.thread.join();
}

void MeetingServer::stop_listening() {
  ::shutdown(listener_.get(), SHUT_RDWR);  // wakes accept
  if (thread_.joinable()) thread_.join();
  listener_ = FileDescriptor();
}

void MeetingServer::listen() {
  while (true) {
    FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.get() < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until others have closed what they had open
      continue;
    }
    forget_ended();
    if (full()) continue;
    const std::scoped_lock lock(mutex_);
    Connection& connection = connections_.emplace_back(std::move(socket));
    connection.thread = std::thread([this, &connection] { serve(connection); });
  }
}

bool MeetingServer::full() {
  const std::scoped_lock lock(mutex_);
  return std::ranges::count_if(connections_, [](const Connection& each) { return !each.is_trusted; }) >= kMostStrangers;
}

void MeetingServer::forget_ended() {
  const std::scoped_lock lock(mutex_);
  for (auto each = connections_.begin(); each != connections_.end();) {
    if (!each->has_ended) {
      ++each;
      continue;
    }
    each->thread.join();  // at its last line
    each = connections_.erase(each);
  }
}

void MeetingServer::serve(Connection& connection) {
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
  } catch (const Error&) {  // whoever was there learns by the end of the connection
  }
  connection.channel.close();
  const std::scoped_lock lock(mutex_);
  connection.has_ended = true;
}

}  // namespace chimera

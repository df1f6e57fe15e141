#include "rendezvous/client.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "rendezvous/address.h"

namespace chimera {
namespace {

constexpr std::chrono::milliseconds kPause{50};  // between attempts

Channel greeted(const MeetingPoint& meeting, std::chrono::milliseconds timeout) {
  const Deadline deadline = after(timeout);
  std::string reason;
  while (true) {
    try {
      Channel channel(connect_to(meeting, deadline));
      greet_as_client(channel, meeting.secret, deadline);
      return channel;
    } catch (const ChannelError& error) {
      reason = error.what();
    }
    if (std::chrono::steady_clock::now() + kPause >= deadline) break;
    std::this_thread::sleep_for(kPause);
  }
  throw TransportError(
      fmt::format("no answer from {}, where the ranks meet, within {:g} s; rank 0 answers there once it has started, "
                  "unless another "
                  "program has the port ({})",
                  place_of(meeting), std::chrono::duration<double>(timeout).count(), reason));
}

}  // namespace

MeetingClient::MeetingClient(const MeetingPoint& meeting, std::chrono::milliseconds timeout)
    : channel_(greeted(meeting, timeout)) {}

Answer MeetingClient::ask(const Request& request) {
  const std::scoped_lock lock(mutex_);
  const Deadline deadline = after(request.timeout + kAnswerTime);
  try {
    channel_.send(to_bytes(request), deadline);
    if (const auto message = channel_.receive(deadline)) return read_answer(*message);
  } catch (const ChannelError&) {
  }
  throw PeerLostError("the server at which the ranks meet is gone, and rank 0 with it");
}

}  // namespace chimera

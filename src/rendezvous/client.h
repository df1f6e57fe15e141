#pragma once
// A rank's connection to the server of its meeting.

#include <chrono>
#include <mutex>

#include "core/rendezvous_point.h"
#include "rendezvous/channel.h"
#include "rendezvous/request.h"

namespace chimera {

/// Asks the server, and waits for its answers. Any thread.
class MeetingClient {
 public:
  /// Connects with `meeting`'s server, trying again until it is there, and greets it. Throws TransportError where none
  /// answers in time; ConfigError where it has another secret.
  MeetingClient(const MeetingPoint& meeting, std::chrono::milliseconds timeout);

  /// Throws PeerLostError where the server is gone or says nothing, kAnswerTime beyond the request's own timeout.
  [[nodiscard]] Answer ask(const Request& request);

  static constexpr std::chrono::milliseconds kAnswerTime{10'000};

 private:
  std::mutex mutex_;
  Channel channel_;
};

}  // namespace chimera

#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/file_descriptor.h"
#include "core/rendezvous_point.h"
#include "rendezvous/channel.h"
#include "rendezvous/key_value_store.h"

// What a rank asks of the words at a meeting, as it travels: CBOR (RFC 8949).

// A rank's connection to the server of its meeting.

// Rank 0's side of a meeting.

namespace chimera {

enum class RequestKind : std::uint8_t { Set, Get, Add, Remove, Count, Check, Wait };

struct Request {
  RequestKind kind = RequestKind::Count;
  std::vector<std::string> names = {};   ///< one; several for Check and Wait; none for Count
  std::string value = {};                ///< Set
  std::int64_t number = 0;               ///< Add
  std::chrono::milliseconds timeout{0};  ///< Get and Wait, which wait for what is not there yet
};

struct Answer {
  bool is_there = false;  ///< Get, Check, Wait: all that was asked for; Remove: it was
  std::string value = {};
  std::int64_t number = 0;  ///< Add: the sum; Count
};

[[nodiscard]] std::string to_bytes(const Request& request);
[[nodiscard]] std::string to_bytes(const Answer& answer);
/// Throws ChannelError where the bytes are none.
[[nodiscard]] Request read_request(std::string_view bytes);
[[nodiscard]] Answer read_answer(std::string_view bytes);

/// Does what is asked, and waits for it.
[[nodiscard]] Answer answer(Words& words, const Request& request);

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

/// Keeps words for whoever proves to know the secret; a thread for each connection. Strangers are told nothing: one has
/// five seconds for its proof, and at most 64 are listened to at once, so that others may have to try again.
class MeetingServer {
 public:
  /// `listener`: a listening socket.
  MeetingServer(FileDescriptor listener, std::string secret);
  MeetingServer(const MeetingServer&) = delete;
  MeetingServer& operator=(const MeetingServer&) = delete;
  /// Ends all connections.
  ~MeetingServer();

  /// Takes no more connections; those that are there stay.
  void stop_listening();

  static constexpr std::chrono::milliseconds kProofTime{5000};
  static constexpr int kMostStrangers = 64;

 private:
  struct Connection {
    explicit Connection(FileDescriptor socket) : channel(std::move(socket)) {}
    Channel channel;
    bool is_trusted = false;  // under the mutex, as what follows
    bool has_ended = false;
    std::thread thread;
  };

  void listen();
  void serve(Connection& connection);
  [[nodiscard]] bool full();
  void forget_ended();

  FileDescriptor listener_;
  std::string secret_;
  Words words_;
  std::mutex mutex_;
  std::list<Connection> connections_;
  std::thread thread_;  // that listens; last, as it uses the others
};

}  // namespace chimera

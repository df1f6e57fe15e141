#pragma once
// Rank 0's side of a meeting.

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/file_descriptor.h"
#include "rendezvous/channel.h"
#include "rendezvous/key_value_store.h"

namespace chimera {

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

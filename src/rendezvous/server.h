#pragma once

// The rendezvous server of rank 0, and its clients in all ranks. It replaces c10d's TCPStore, which accepts any client
// and trusts any length. A request is one operation on the KeyValueStore, in CBOR. The transport wraps the client as a
// c10d::Store (transport/gloo/rendezvous_store.h).
//
//   RendezvousClient (each rank) --Request, Answer over a Channel--> RendezvousServer (rank 0) -> KeyValueStore

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/file_descriptor.h"
#include "core/rendezvous_point.h"
#include "rendezvous/channel.h"

namespace chimera {

enum class RequestKind : std::uint8_t { Set, Get, Add, Remove, Count, Check, Wait };

struct Request {
  RequestKind kind = RequestKind::Count;
  std::vector<std::string> names = {};   ///< several for Check and Wait; empty for Count
  std::string value = {};                ///< for Set
  std::int64_t number = 0;               ///< for Add
  std::chrono::milliseconds timeout{0};  ///< for missing keys in Get and Wait
};

struct Answer {
  bool is_there = false;  ///< Get, Check, Wait: all keys exist; Remove: the key existed
  std::string value = {};
  std::int64_t number = 0;  ///< Add: the sum, which starts at 0; Count: the number of keys
};

[[nodiscard]] std::string to_bytes(const Request& request);
[[nodiscard]] std::string to_bytes(const Answer& answer);
/// Decodes CBOR (RFC 8949). Throws ChannelError.
[[nodiscard]] Request read_request(std::string_view bytes);
[[nodiscard]] Answer read_answer(std::string_view bytes);

/// The key-value store that ranks use for rendezvous, in the memory of rank 0. Thread-safe.
class KeyValueStore {
 public:
  /// Carries out a request. Get and Wait block until all keys exist, at most for the request's timeout.
  [[nodiscard]] Answer answer(const Request& request);
  /// Ends all waits, also later ones.
  void stop();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  bool stopped_ = false;
};

/// Client of the rendezvous server. Thread-safe.
class RendezvousClient {
 public:
  /// Retries until `timeout`. Throws TransportError if all attempts fail; ConfigError if the secrets differ.
  RendezvousClient(const RendezvousPoint& rendezvous, std::chrono::milliseconds timeout);

  /// Throws PeerLostError if the connection fails, or no answer arrives within the request's timeout plus kAnswerTime.
  [[nodiscard]] Answer ask(const Request& request);

  static constexpr std::chrono::milliseconds kAnswerTime{10'000};

 private:
  std::mutex mutex_;
  Channel channel_;
};

/// Serves authenticated clients, with a thread per connection. Authentication is limited to kProofTime. While
/// kMostStrangers clients are not authenticated, new connections are closed and must be retried.
class RendezvousServer {
 public:
  RendezvousServer(FileDescriptor listener, std::string secret);
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;
  ~RendezvousServer();

  /// Existing connections stay open.
  void stop_listening();

  static constexpr std::chrono::milliseconds kProofTime{5000};
  static constexpr int kMostStrangers = 64;

 private:
  struct Connection {
    explicit Connection(FileDescriptor socket) : channel(std::move(socket)) {}
    Channel channel;
    bool is_trusted = false;  // guarded by mutex_, like has_ended
    bool has_ended = false;
    std::thread thread;
  };

  void listen();
  void serve(Connection& connection);

  FileDescriptor listener_;
  std::string secret_;
  KeyValueStore store_;
  std::mutex mutex_;
  std::list<Connection> connections_;
  std::thread thread_;  // last member, because it uses the others
};

}  // namespace chimera

#pragma once

// The key-value store at which the ranks of a job on several hosts meet: a server in rank 0, and a client in every
// rank. It replaces TCPStore of PyTorch's c10d, which accepts any client and trusts the lengths that clients send. A
// request is one operation on the KeyValueStore, encoded in CBOR. The Gloo transport wraps the client as a c10d::Store
// (transport/gloo/rendezvous_store.h).
//
//   RendezvousClient (each rank) --Request, Answer over a Channel--> RendezvousServer (rank 0) -> KeyValueStore

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/file_descriptor.h"
#include "core/rendezvous_point.h"
#include "rendezvous/channel.h"

namespace chimera {

/// Operations of the store. Get waits until all keys exist; Add adds to the number in a value, which is decimal text;
/// Remove removes a key; Count returns the number of keys in the store.
enum class RequestKind : std::uint8_t { Set, Get, Add, Remove, Count };

/// A request of a client. Each kind uses some of the fields.
struct Request {
  RequestKind kind = RequestKind::Count;
  std::vector<std::string> names = {};   ///< keys: at least one for Get, none for Count, else one
  std::string value = {};                ///< Set: the new value
  std::int64_t number = 0;               ///< Add: the number to add
  std::chrono::milliseconds timeout{0};  ///< Get: maximum time to wait for missing keys
};

/// The server's answer to a request.
struct Answer {
  bool is_there = false;    ///< Get: all keys exist; Remove: the key existed; others: true
  std::string value = {};   ///< Get: the value of the first key
  std::int64_t number = 0;  ///< Add: the sum, which starts at 0; Count: the number of keys
};

/// Encode a request or an answer as CBOR (RFC 8949).
[[nodiscard]] std::string to_bytes(const Request& request);
[[nodiscard]] std::string to_bytes(const Answer& answer);
/// Decode a request or an answer. Throw ChannelError if the bytes are malformed.
[[nodiscard]] Request read_request(std::string_view bytes);
[[nodiscard]] Answer read_answer(std::string_view bytes);

/// The key-value store that ranks use for rendezvous, in the memory of rank 0. Thread-safe.
class KeyValueStore {
 public:
  /// Performs a request and returns its answer. Get blocks until all keys exist, at most for the request's timeout;
  /// if a key is then still missing, Answer::is_there is false.
  [[nodiscard]] Answer answer(const Request& request);
  /// Makes all waiting calls return, and all later calls return without waiting.
  void stop();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  bool stopped_ = false;
};

/// Client of the rendezvous server. Thread-safe: requests are sent one after the other.
class RendezvousClient {
 public:
  /// Connects to the server. Retries until `timeout`, because rank 0 may start later. Throws TransportError if all
  /// attempts fail, PeerLostError once `gives_up` (may be empty) returns true before an attempt, ConfigError if the
  /// server has another secret.
  RendezvousClient(const RendezvousPoint& rendezvous, std::chrono::milliseconds timeout,
                   const std::function<bool()>& gives_up = {});

  /// Sends a request and returns the server's answer. Throws PeerLostError if the connection fails, or no answer
  /// arrives within the request's timeout plus kAnswerTime.
  [[nodiscard]] Answer ask(const Request& request);

  static constexpr std::chrono::milliseconds kAnswerTime{10'000};

 private:
  std::mutex mutex_;
  Channel channel_;
};

/// Serves clients that prove that they have the job's secret (channel.h), with a thread per connection. A client must
/// prove it within kProofTime. While kMaxUnauthenticated connections have not done so yet, new connections are closed;
/// their clients try again.
class RendezvousServer {
 public:
  /// `listener` is a listening TCP socket. An empty secret accepts all clients that use the same protocol.
  RendezvousServer(FileDescriptor listener, std::string secret);
  RendezvousServer& operator=(RendezvousServer&&) = delete;
  /// Closes all connections, ends waiting requests, and joins the threads.
  ~RendezvousServer();

  /// Accepts no more connections. Existing connections stay open.
  void stop_listening();

  static constexpr std::chrono::milliseconds kProofTime{5000};
  static constexpr int kMaxUnauthenticated = 64;

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

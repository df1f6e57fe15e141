#include "transport/gloo/rendezvous_store.h"

#include <fcntl.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cerrno>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "core/console.h"
#include "core/error.h"
#include "core/reject.h"
#include "rendezvous/address.h"

// Three kinds of c10d::Store serve the same purpose: a file, Chimera's own server, or torchrun's. RendezvousStore
// chooses, and await_all() then lets every rank wait until all have come, with one key for each rank. Process groups
// use the same store afterwards, each with a prefix of its own.

namespace chimera {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1};
constexpr int kAnyNumber = -1;  // of workers of a FileStore, which then leaves its file

/// FileStore whose waits throw PeerLostError soon after `breaker` has broken connections.
class BreakableStore final : public c10d::FileStore {
 public:
  BreakableStore(const std::string& path, std::shared_ptr<ConnectionBreaker> breaker)
      : FileStore(path, kAnyNumber), breaker_(std::move(breaker)) {}

  c10::intrusive_ptr<Store> clone() override { return c10::make_intrusive<BreakableStore>(path_, breaker_); }
  std::vector<std::uint8_t> get(const std::string& key) override {
    wait({key}, timeout_);
    return FileStore::get(key);
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (!check(keys)) {
      if (breaker_->is_broken()) throw PeerLostError("another rank was lost before all ranks had joined");
      if (std::chrono::steady_clock::now() > end) throw TransportError("timeout: a rank has not joined");
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }

 private:
  std::shared_ptr<ConnectionBreaker> breaker_;
};

/// c10d store on a RendezvousServer. c10d's own TCPStore accepts any client, trusts any length, and waits forever for a
/// stopped server.
class ServedStore final : public c10d::Store {
 public:
  ServedStore(std::shared_ptr<RendezvousClient> client, std::chrono::milliseconds timeout)
      : Store(timeout), client_(std::move(client)) {}

  c10::intrusive_ptr<Store> clone() override { return c10::make_intrusive<ServedStore>(client_, timeout_); }

  using Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    static_cast<void>(client_->ask({.kind = RequestKind::Set, .names = {key}, .value = {value.begin(), value.end()}}));
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    const Answer answer = client_->ask({.kind = RequestKind::Get, .names = {key}, .timeout = timeout_});
    if (!answer.is_there) throw late(timeout_);
    return {answer.value.begin(), answer.value.end()};
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    return client_->ask({.kind = RequestKind::Add, .names = {key}, .number = value}).number;
  }
  bool deleteKey(const std::string& key) override {
    return client_->ask({.kind = RequestKind::Remove, .names = {key}}).is_there;
  }
  bool check(const std::vector<std::string>& keys) override {
    return client_->ask({.kind = RequestKind::Get, .names = keys}).is_there;
  }
  std::int64_t getNumKeys() override { return client_->ask({.kind = RequestKind::Count}).number; }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    if (!client_->ask({.kind = RequestKind::Get, .names = keys, .timeout = timeout}).is_there) throw late(timeout);
  }

 private:
  static TransportError late(std::chrono::milliseconds timeout) {
    return TransportError(fmt::format("no rank set the key within {} ms", timeout.count()));
  }

  std::shared_ptr<RendezvousClient> client_;
};

c10::intrusive_ptr<c10d::Store> connect_agent(const RendezvousPoint& rendezvous, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = rendezvous.port;
  options.waitWorkers = false;
  options.timeout = timeout;
  // TCPStore ignores its timeout if the listener never answers; the thread then waits forever.
  std::packaged_task<c10::intrusive_ptr<c10d::Store>()> connecting(
      [host = rendezvous.host, options] { return c10::make_intrusive<c10d::TCPStore>(host, options); });
  auto connected = connecting.get_future();
  std::thread(std::move(connecting)).detach();
  const auto no_answer = [&] {
    return TransportError(fmt::format("no answer from {}, the rendezvous server of torchrun's agent, within {:g} s",
                                      server_name(rendezvous), std::chrono::duration<double>(timeout).count()));
  };
  if (connected.wait_for(timeout + std::chrono::seconds(1)) != std::future_status::ready) throw no_answer();
  try {
    return connected.get();
  } catch (const std::exception&) {
    throw no_answer();
  }
}

/// Part of the time limit after which a rank prints whom it waits for.
constexpr int kQuietPart = 4;

std::string key_of(int rank) { return fmt::format("rank {}", rank); }

constexpr const char* kAllAreHere = "all";

std::vector<int> missing_of(c10d::Store& store, int world_size) {
  std::vector<int> missing;
  try {
    for (int rank = 0; rank < world_size; ++rank)
      if (!store.check({key_of(rank)})) missing.push_back(rank);
  } catch (const std::exception&) {
    throw PeerLostError("the rendezvous server has ended, and rank 0 with it");
  }
  return missing;
}

}  // namespace

RendezvousStore::RendezvousStore(const RendezvousPoint& rendezvous, std::chrono::milliseconds timeout,
                                 const std::shared_ptr<ConnectionBreaker>& breaker)
    : rendezvous_(rendezvous) {
  if (rendezvous.host.empty()) {
    file_ = FileDescriptor(::open(rendezvous.file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (file_.get() < 0) {
      throw TransportError(
          fmt::format("cannot open the rendezvous file '{}': {}", rendezvous.file, system_message(errno)));
    }
    // FileStore reopens its file by name at every use, even in its destructor, and the caller's path may change.
    const std::string path = fmt::format("/proc/self/fd/{}", file_.get());
    if (breaker) store_ = c10::make_intrusive<BreakableStore>(path, breaker);
    if (!breaker) store_ = c10::make_intrusive<c10d::FileStore>(path, kAnyNumber);
    store_->setTimeout(timeout);
    if (!rendezvous.attempt.empty()) store_ = c10::make_intrusive<c10d::PrefixStore>(rendezvous.attempt, store_);
    return;
  }
  if (rendezvous.listens) server_ = std::make_unique<RendezvousServer>(listen_at(rendezvous), rendezvous.secret);
  c10::intrusive_ptr<c10d::Store> served;
  if (rendezvous.is_agent) {
    served = connect_agent(rendezvous, timeout);
  } else {
    const auto is_broken = [&] { return breaker && breaker->is_broken(); };
    served =
        c10::make_intrusive<ServedStore>(std::make_shared<RendezvousClient>(rendezvous, timeout, is_broken), timeout);
  }
  store_ = c10::make_intrusive<c10d::PrefixStore>("chimera/" + rendezvous.attempt, std::move(served));
}

RendezvousStore::~RendezvousStore() = default;

// Only rank 0 checks all keys, to avoid quadratically many requests.
// The counter of each rank detects a rank number that is given twice, which would otherwise hang or mix up messages.
void RendezvousStore::await_all(int rank, int world_size) {
  if (store_->add(key_of(rank), 1) > 1)
    reject("two processes are rank {}; give each of the {} processes its own rank", rank, world_size);
  std::vector<std::string> keys;
  for (int each = 0; each < world_size; ++each) keys.push_back(key_of(each));
  if (rank != 0) keys = {kAllAreHere};
  // A wait of no time is a wait without a limit (c10d's kNoTimeout).
  const auto some = [](std::chrono::milliseconds time) { return std::max(time, std::chrono::milliseconds(1)); };
  const std::chrono::milliseconds quiet = some(store_->getTimeout() / kQuietPart);
  const Deadline end_of_quiet = deadline_after(quiet);
  try {
    try {
      store_->wait(keys, quiet);
    } catch (const std::exception&) {
      if (std::chrono::steady_clock::now() < end_of_quiet) throw;  // another failure
      announce_missing(rank, world_size, quiet);
      store_->wait(keys, some(store_->getTimeout() - quiet));
    }
    if (rank == 0) store_->set(kAllAreHere, std::vector<std::uint8_t>{1});
  } catch (const std::exception&) {
    const std::vector<int> missing = missing_of(*store_, world_size);
    throw TransportError(fmt::format("{} of {} ranks have not joined within {:g} s: {}{}", missing.size(), world_size,
                                     std::chrono::duration<double>(store_->getTimeout()).count(),
                                     fmt::join(missing, ", "),
                                     rendezvous_.origin.empty() ? "" : "; " + rendezvous_.origin));
  }
}

/// Prints, on the lowest rank that is here, whom it waits for. Ranks of `chimera train` have no origin: their launcher
/// reports what happens to them.
void RendezvousStore::announce_missing(int rank, int world_size, std::chrono::milliseconds waited) {
  if (rendezvous_.origin.empty()) return;
  for (int lower = 0; lower < rank; ++lower)
    if (store_->check({key_of(lower)})) return;
  const std::vector<int> missing = missing_of(*store_, world_size);
  if (missing.empty()) return;
  print_message(fmt::format("rank {} has waited {:g} s for {} of {} ranks: {}; {}", rank,
                            std::chrono::duration<double>(waited).count(), missing.size(), world_size,
                            fmt::join(missing, ", "), rendezvous_.origin));
}

std::string RendezvousStore::own_address() const {
  return rendezvous_.host.empty() ? "" : chimera::own_address(rendezvous_);
}

void RendezvousStore::stop_accepting() {
  if (server_) server_->stop_listening();
}

// Groups that Gloo cannot stop still read the store, so neither may be destroyed.
void RendezvousStore::abandon() noexcept {
  store_.release();
  static_cast<void>(server_.release());  // its threads keep running
  static_cast<void>(file_.release());
}

}  // namespace chimera

#include "transport/connection_breaker.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>

namespace chimera {
namespace {

bool is_tcp_connection(int descriptor) {
  // Many descriptors are no sockets at all; getsockopt() then fails.
  int type = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return false;
  sockaddr_storage peer{};
  size = sizeof peer;
  const bool is_connected = ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
  return is_connected && (peer.ss_family == AF_INET || peer.ss_family == AF_INET6);
}

bool is_listener(int descriptor) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) return false;
  sockaddr_storage own{};
  size = sizeof own;
  const bool has_address = ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  return has_address && (own.ss_family == AF_INET || own.ss_family == AF_INET6);
}

/// Gloo does not tell its sockets, so they are found among the process's descriptors. An inode names a socket for its
/// whole life, while descriptors are reused.
///
/// Returns the descriptors of open TCP connections, and perhaps of listeners, by the inodes of their sockets.
std::map<ino_t, int> open_connections(bool with_listeners = true) {
  std::map<ino_t, int> open;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    const int descriptor = std::stoi(entry.path().filename().string());
    struct stat status {};
    const bool counts = is_tcp_connection(descriptor) || (with_listeners && is_listener(descriptor));
    if (counts && ::fstat(descriptor, &status) == 0) open.emplace(status.st_ino, descriptor);
  }
  return open;
}

}  // namespace

std::set<ino_t> open_tcp_connections() {
  std::set<ino_t> sockets;
  for (const auto& [inode, descriptor] : open_connections(/*with_listeners=*/false)) sockets.insert(inode);
  return sockets;
}

void ConnectionBreaker::exclude_open() {
  const std::lock_guard lock(mutex_);
  for (const auto& [inode, descriptor] : open_connections()) spared_.insert(inode);
}

void ConnectionBreaker::exclude_later() {
  const std::lock_guard lock(mutex_);
  broken_only_.emplace();
  for (const auto& [inode, descriptor] : open_connections()) broken_only_->insert(inode);
}

void ConnectionBreaker::include_listeners() {
  const std::lock_guard lock(mutex_);
  includes_listeners_ = true;
}

// The flag comes first: a thread that fails by the shutdown must see that it was on purpose.
void ConnectionBreaker::break_all() noexcept {
  broken_ = true;
  const std::lock_guard lock(mutex_);
  if (abort_) abort_();
  // shutdown() wakes threads that wait on the socket, unlike close(), and leaves the descriptor to its owner.
  for (const auto& [inode, descriptor] : open_connections(includes_listeners_)) {
    const bool is_spared = spared_.contains(inode) || (broken_only_ && !broken_only_->contains(inode));
    if (!is_spared) ::shutdown(descriptor, SHUT_RDWR);
  }
}

ConnectionBreaker::AbortScope::AbortScope(ConnectionBreaker* breaker, std::function<void()> abort) : breaker_(breaker) {
  if (breaker_ == nullptr) return;
  const std::lock_guard lock(breaker_->mutex_);
  breaker_->abort_ = std::move(abort);
}

ConnectionBreaker::AbortScope::~AbortScope() {
  if (breaker_ == nullptr) return;
  const std::lock_guard lock(breaker_->mutex_);
  breaker_->abort_ = nullptr;
}

}  // namespace chimera

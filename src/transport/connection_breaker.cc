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

/// Returns an option of a socket, or 0 for a descriptor that is no socket, as many are.
int socket_option(int descriptor, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(descriptor, SOL_SOCKET, option, &value, &size) == 0 ? value : 0;
}

/// Returns whether getpeername() or getsockname() gives an address of IPv4 or IPv6.
bool is_internet_address(int descriptor, int (*name_of)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  const bool has_name = name_of(descriptor, reinterpret_cast<sockaddr*>(&name), &size) == 0;
  return has_name && (name.ss_family == AF_INET || name.ss_family == AF_INET6);
}

bool is_tcp_connection(int descriptor) {
  return socket_option(descriptor, SO_TYPE) == SOCK_STREAM && is_internet_address(descriptor, ::getpeername);
}

bool is_listener(int descriptor) {
  return socket_option(descriptor, SO_ACCEPTCONN) != 0 && is_internet_address(descriptor, ::getsockname);
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

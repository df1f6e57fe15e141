#include "transport/connection_breaker.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace chimera {
namespace {

bool is_tcp_connection(int descriptor) {
  int type = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return false;
  sockaddr_storage peer{};
  size = sizeof peer;
  const bool is_connected = ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
  return is_connected && (peer.ss_family == AF_INET || peer.ss_family == AF_INET6);
}

std::vector<int> open_descriptors() {
  std::vector<int> open;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    open.push_back(std::stoi(entry.path().filename().string()));
  }
  return open;
}

}  // namespace

void ConnectionBreaker::break_all() noexcept {
  broken_ = true;
  for (const int descriptor : open_descriptors()) {
    if (is_tcp_connection(descriptor)) ::shutdown(descriptor, SHUT_RDWR);
  }
  const std::lock_guard lock(mutex_);
  if (abort_wait_) abort_wait_();
}

ConnectionBreaker::Wait::Wait(ConnectionBreaker* breaker, std::function<void()> abort) : breaker_(breaker) {
  if (breaker_ == nullptr) return;
  const std::lock_guard lock(breaker_->mutex_);
  breaker_->abort_wait_ = std::move(abort);
}

ConnectionBreaker::Wait::~Wait() {
  if (breaker_ == nullptr) return;
  const std::lock_guard lock(breaker_->mutex_);
  breaker_->abort_wait_ = nullptr;
}

}  // namespace chimera

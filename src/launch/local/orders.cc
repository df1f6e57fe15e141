#include "launch/local/orders.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace chimera {
namespace {

struct DescriptorRoom {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> bytes{};
};

msghdr message_of(iovec& text, DescriptorRoom& room) {
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = room.bytes.data();
  message.msg_controllen = room.bytes.size();
  return message;
}

}  // namespace

OrderChannel open_order_channel() {
  std::array<int, 2> ends{};
  check_system(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), "make a pair of sockets");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

void send_order(int launcher, const Order& order, int store) noexcept {
  Order sent = order;
  iovec text{&sent, sizeof sent};
  DescriptorRoom room;
  msghdr message = message_of(text, room);
  if (store >= 0) {
    cmsghdr* passed = CMSG_FIRSTHDR(&message);
    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(sizeof store);
    std::memcpy(CMSG_DATA(passed), &store, sizeof store);
  } else {
    message.msg_control = nullptr;
    message.msg_controllen = 0;
  }
  ::sendmsg(launcher, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

std::optional<ReceivedOrder> receive_order(int rank) {
  ReceivedOrder received;
  iovec text{&received.order, sizeof received.order};
  DescriptorRoom room;
  msghdr message = message_of(text, room);
  ssize_t size = 0;
  do {
    size = ::recvmsg(rank, &message, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size != static_cast<ssize_t>(sizeof received.order)) return std::nullopt;
  const cmsghdr* passed = CMSG_FIRSTHDR(&message);
  if (passed != nullptr && passed->cmsg_type == SCM_RIGHTS) {
    int store = -1;
    std::memcpy(&store, CMSG_DATA(passed), sizeof store);
    received.store = FileDescriptor(store);
  }
  return received;
}

}  // namespace chimera

#include "launch/local/recovery.h"

#include <sys/socket.h>

#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <span>

#include "launch/local/rank.h"

// The three parts of a recovery, in the order of a message's way: the socket pair that carries orders, and with an
// order to join also the descriptor of the next rendezvous store (SCM_RIGHTS, see unix(7)); RecoveryLink, the rank's
// side, whose thread receives orders while the main thread computes or waits; and Recovery, the launcher's state
// machine, which knows no processes and no clock, so that tests can drive it.

namespace chimera {
namespace {

// Between two calls of `end_waits`.
constexpr std::chrono::milliseconds kBetweenCalls{5};

// Room for the control message that carries one descriptor. The macros of cmsg(3) need the alignment of its header.
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
  // SOCK_SEQPACKET keeps the borders of messages and reports the end of the other side; SOCK_STREAM would do only the
  // latter, SOCK_DGRAM only the former.
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
  // Does not block: a stopped rank does not read its orders, and the launcher must still supervise the others.
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
  // A size of 0 is the end of the connection.
  if (size != static_cast<ssize_t>(sizeof received.order)) return std::nullopt;
  const cmsghdr* passed = CMSG_FIRSTHDR(&message);
  if (passed != nullptr && passed->cmsg_type == SCM_RIGHTS) {
    int store = -1;
    std::memcpy(&store, CMSG_DATA(passed), sizeof store);
    received.store = FileDescriptor(store);
  }
  return received;
}

RecoveryLink::RecoveryLink(int rank, std::int64_t generation, FileDescriptor orders, std::function<void()> end_waits)
    : rank_(rank),
      orders_(std::move(orders)),
      end_waits_(std::move(end_waits)),
      generation_(generation),
      ordered_(generation),
      left_(generation),
      joined_(0),
      thread_([this] { take_orders(); }) {}

RecoveryLink::~RecoveryLink() {
  {
    const std::lock_guard lock(mutex_);
    left_ = std::numeric_limits<std::int64_t>::max();  // a failing rank no longer waits for others
  }
  news_.notify_all();
  ::shutdown(orders_.get(), SHUT_RDWR);
  thread_.join();
}

void RecoveryLink::take_orders() {
  while (auto received = receive_order(orders_.get())) {
    const std::int64_t generation = received->order.generation;
    std::unique_lock lock(mutex_);
    if (received->order.kind == Order::Kind::Join) {
      joined_ = generation;
      const auto copies = std::span(received->order.extra_copies).first(received->order.num_extra_copies);
      next_ = {.store = std::move(received->store),
               .absent = received->order.absent,
               .extra_copies = {copies.begin(), copies.end()}};
      news_.notify_all();
      continue;
    }
    ordered_ = generation;
    news_.notify_all();
    // Repeats, because a wait may begin after the connections were broken. The lock is released meanwhile: end_waits_()
    // may block until the rank's thread has moved on, and that thread needs the lock in rejoin().
    while (left_ < ordered_) {
      is_ending_waits_ = true;
      lock.unlock();
      end_waits_();
      lock.lock();
      is_ending_waits_ = false;
      news_.notify_all();
      news_.wait_for(lock, kBetweenCalls, [&] { return left_ >= ordered_; });
    }
  }
}

bool RecoveryLink::must_leave(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return news_.wait_for(lock, timeout, [&] { return ordered_ > generation_; });
}

JoinedGeneration RecoveryLink::rejoin(const std::function<void()>& on_left) {
  std::unique_lock lock(mutex_);
  do {
    // Another generation begins if a rank is lost while this one waits for the order to join; then the loop repeats.
    generation_ = left_ = ordered_;
    news_.notify_all();
    news_.wait(lock, [&] { return !is_ending_waits_; });
    on_left();
    note_recovery({.rank = rank_, .kind = RecoveryNote::Kind::Left, .generation = generation_});
    news_.wait(lock, [&] { return joined_ == generation_ || ordered_ > generation_; });
  } while (joined_ != generation_);
  return std::move(next_);
}

void RecoveryLink::note_resumed(std::int64_t step, std::vector<std::int64_t> groups) const {
  note_recovery({.rank = rank_,
                 .kind = RecoveryNote::Kind::Resumed,
                 .generation = generation_,
                 .step = step,
                 .groups = std::move(groups)});
}

Recovery::Recovery(int ranks, RankGroups copies, int most, Replacement replacement, RankGroups shards,
                   std::int64_t parts)
    : copies_(std::move(copies)),
      shards_(std::move(shards)),
      parts_(parts),
      restarts_(most, {.again = "recovered", .flag = "--max-recoveries"}),
      replacement_(replacement),
      places_(static_cast<std::size_t>(ranks), Place::Elsewhere),
      has_weights_(static_cast<std::size_t>(ranks), true),
      extra_groups_(static_cast<std::size_t>(ranks)) {}

std::vector<GroupHolder> Recovery::extra_copies() const {
  std::vector<GroupHolder> copies;
  for (std::size_t rank = 0; rank < extra_groups_.size(); ++rank) {
    for (const std::int64_t group : extra_groups_[rank]) {
      if (!has_weights_[rank] || copies.size() == kMaxExtraCopies) break;
      copies.push_back({RankId(static_cast<std::int64_t>(rank)), ParameterGroupId(group)});
    }
  }
  return copies;
}

/// Returns an error message if only lost ranks held some weights.
std::string Recovery::missing_copy(bool counts_extra) const {
  const auto is_lost = [&](const std::vector<RankId>& holders) {
    return std::ranges::none_of(holders, [&](RankId rank) { return has_weights_[rank.index()]; });
  };
  RankGroups copies = copies_;
  if (counts_extra)
    for (const auto& [rank, group] : extra_copies()) copies.at(group.index()).push_back(rank);
  const auto stage = std::ranges::find_if(copies, is_lost);
  if (stage != copies.end())
    return fmt::format("not recovered: no rank is left that holds stage {}", (stage - copies.begin()) / parts_);
  if (std::ranges::none_of(shards_, is_lost)) return "";
  return "not recovered: no rank is left that holds a shard of the optimizer (--shard-optimizer)";
}

// Ranks that are lost while the others still leave belong to the same recovery and cost no other attempt: a host takes
// several ranks with it. A replacement that is lost has failed on its own, so it costs one.
Recovery::Answer Recovery::handle_loss(const std::vector<int>& ranks, std::int64_t step) {
  bool is_another = state_ != State::Leaving;
  bool are_new = !ranks.empty();  // Whether all of them are replacements
  for (const int rank : ranks) {
    const auto index = static_cast<std::size_t>(rank);
    is_another = is_another || !has_weights_[index];
    are_new = are_new && !has_weights_[index];
    has_weights_[index] = false;
    extra_groups_[index].clear();
  }
  if (std::string why = missing_copy(/*counts_extra=*/true); !why.empty()) return {.why_not = std::move(why)};
  bool leaves_out = replacement_ == Replacement::None;
  if (is_another) {
    const Restarts::Advice advice = restarts_.after_failure(step);
    // If only replacements failed, and failed too often, the job can still continue without them. If others failed as
    // well, the job itself may be at fault, and it ends.
    const bool gives_up = !advice.again && are_new && replacement_ == Replacement::Preferred;
    if (!advice.again && !gives_up) return {.why_not = advice.why_not};
    leaves_out = leaves_out || gives_up;
  }
  for (const int rank : ranks) absent_.set(static_cast<std::size_t>(rank), leaves_out);
  if (state_ == State::Leaving) {
    for (const int rank : ranks) places_[static_cast<std::size_t>(rank)] = Place::Elsewhere;
    return {};
  }
  begin_generation();
  return {.begins_generation = true};
}

void Recovery::begin_generation() {
  ++generation_;
  std::ranges::fill(places_, Place::Elsewhere);
  state_ = State::Leaving;
}

void Recovery::leave_out_missing() {
  for (std::size_t rank = 0; rank < places_.size(); ++rank)
    if (!has_weights_[rank] && places_[rank] != Place::Left) absent_.set(rank);
}

std::vector<int> Recovery::welcome() {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(places_.size()); ++rank)
    if (ready_.test(static_cast<std::size_t>(rank))) ranks.push_back(rank);
  absent_ &= ~ready_;
  ready_.reset();
  begin_generation();
  return ranks;
}

// A note may be late: it was written before its rank was lost, or belongs to a generation that ended by another loss.
void Recovery::note(const RecoveryNote& note) {
  const bool is_known = note.rank >= 0 && note.rank < static_cast<int>(places_.size());
  if (is_known && is_absent(note.rank)) {
    if (note.kind == RecoveryNote::Kind::Left) ready_.set(static_cast<std::size_t>(note.rank));
    return;
  }
  if (!is_known || note.generation != generation_) return;
  const bool has_resumed = note.kind == RecoveryNote::Kind::Resumed;
  // Ranks send Resumed again when their extra copies change, also while no recovery is under way.
  if (has_resumed) extra_groups_[static_cast<std::size_t>(note.rank)] = note.groups;
  if (state_ == State::Running) return;
  if (has_resumed && state_ != State::Joining) return;
  places_[static_cast<std::size_t>(note.rank)] = has_resumed ? Place::Resumed : Place::Left;
  if (has_resumed) resumed_after_ = note.step;
}

bool Recovery::all_are_at(Place place) const {
  for (std::size_t rank = 0; rank < places_.size(); ++rank)
    if (!absent_.test(rank) && places_[rank] != place) return false;
  return true;
}

void Recovery::finish() {
  state_ = State::Running;
  for (std::size_t rank = 0; rank < has_weights_.size(); ++rank) has_weights_[rank] = !absent_.test(rank);
}

}  // namespace chimera

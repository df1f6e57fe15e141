#include "transport/threads/thread_transport.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/mapped.h"
#include "transport/groups.h"
#include "transport/ordered_sum.h"
#include "transport/stream.h"

// From the inside out: CloseFlag, which ends all waits after a failure; ThreadChannel, the queue of one direction;
// ThreadSum, the collectives of one group; Network, which has all of these; the Pending objects; and ThreadTransport,
// one rank's view of the Network. Messages copy nothing: they refer to the sender's tensor.

namespace chimera {
namespace {

/// Flag that can be closed; keeps the first reason.
class CloseFlag {
 public:
  void close(const std::string& why) {
    const std::scoped_lock lock(mutex_);
    if (closed_) return;
    why_ = why;
    closed_ = true;
  }
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  /// Throws PeerLostError "OPERATION: WHY" if closed. `describe` returns the operation.
  template <class Describe>
  void check(Describe&& describe) const {
    if (!closed_) return;
    const std::scoped_lock lock(mutex_);
    throw PeerLostError(describe() + ": " + why_);
  }

 private:
  std::atomic<bool> closed_ = false;
  mutable std::mutex mutex_;
  std::string why_;
};

/// Directed FIFO channel between two threads, by reference. Messages are numbered from 0. One thread sends, one
/// receives, any thread may call wake().
class ThreadChannel {
 public:
  struct Message {
    Handover tensor;
    MessageTag tag;
  };

  void send(Message message) {
    {
      const std::scoped_lock lock(mutex_);
      messages_.emplace(sent_++, std::move(message));
    }
    arrived_.notify_one();
  }
  /// Returns the number of the next message to receive.
  [[nodiscard]] std::int64_t post() { return posted_++; }
  /// Blocks until message `number` arrives. Returns an undefined tensor if `close_flag` is closed. Receives may be
  /// waited for out of order. Call it once per number.
  [[nodiscard]] Message take(std::int64_t number, const CloseFlag& close_flag) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return close_flag.closed() || messages_.contains(number); });
    if (close_flag.closed()) return {};
    return std::move(messages_.extract(number).mapped());
  }
  /// Makes a blocked take() check its flag again.
  void wake() {
    const std::scoped_lock lock(mutex_);
    arrived_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::int64_t, Message> messages_;  ///< by number
  std::int64_t sent_ = 0;
  std::int64_t posted_ = 0;
};

/// A member's contribution to a collective.
struct Addend {
  GradientSum sum;        ///< To add; to gather: the buffer and the number of each member's elements
  bool gathers = false;   ///< The collective is an all-gather
  StreamMark ready = {};  ///< when the tensors of `sum` are ready
};

/// Adds in the order of members, or in the given order. The first member's buffer holds the sum without an order.
at::Tensor sum_of(std::vector<Addend>& addends) {
  if (const SumOrder* order = addends.front().sum.order; order != nullptr) {
    const auto take = [](Addend& addend) { return std::move(addend.sum.parts); };
    return add_in_order(*order, mapped<std::vector<at::Tensor>>(addends, take));
  }
  at::Tensor sum = addends.front().sum.gradients;
  for (std::size_t member = 1; member < addends.size(); ++member) sum.add_(addends[member].sum.gradients);
  return sum;
}

/// Copies each member's part into the other members' buffers.
void all_gather(std::vector<Addend>& addends) {
  std::int64_t offset = 0;
  for (std::size_t owner = 0; owner < addends.size(); ++owner) {
    const std::int64_t count = addends.front().sum.counts[owner];
    const at::Tensor owned = addends[owner].sum.gradients.narrow(0, offset, count);
    for (std::size_t member = 0; member < addends.size(); ++member)
      if (member != owner) addends[member].sum.gradients.narrow(0, offset, count).copy_(owned);
    offset += count;
  }
}

/// Copies the sum to all members, or to each the elements that it keeps in a reduce-scatter.
void write_sum(const at::Tensor& sum, std::vector<Addend>& addends) {
  const std::vector<std::int64_t>& counts = addends.front().sum.counts;
  std::int64_t offset = 0;
  for (std::size_t member = 0; member < addends.size(); ++member) {
    at::Tensor& buffer = addends[member].sum.gradients;
    const std::int64_t count = counts.empty() ? sum.numel() : counts[member];
    // The buffer of the first member is the sum itself, unless the sum has an order.
    if (!buffer.is_same(sum)) buffer.narrow(0, offset, count).copy_(sum.narrow(0, offset, count));
    if (!counts.empty()) offset += count;
  }
}

/// Returns an error text, or "". Tensors may be the work of other threads' streams, so the current stream waits for
/// them first.
std::string add_up(std::vector<Addend>& addends) {
  const at::NoGradGuard no_grad;
  const at::Tensor& first = addends.front().sum.gradients;
  const bool fit = std::all_of(addends.begin(), addends.end(), [&](const Addend& addend) {
    return addend.sum.gradients.sizes() == first.sizes() && addend.sum.gradients.scalar_type() == first.scalar_type();
  });
  if (!fit) return "the members' buffers differ in size or type";
  try {
    for (const Addend& addend : addends) {
      addend.ready.await();
      use_on_current_stream(addend.sum.gradients);
      for (const at::Tensor& part : addend.sum.parts) use_on_current_stream(part);
    }
    if (addends.front().gathers) {
      all_gather(addends);
      return {};
    }
    write_sum(sum_of(addends), addends);
  } catch (const std::exception& error) {  // the other members must not wait forever
    return error.what();
  }
  return {};
}

/// Rounds of a collective: the members' n-th deposits form round n. The first member that waits after all deposits adds
/// for all, so no thread of its own is needed, and the order of the sum does not depend on who adds.
class ThreadSum {
 public:
  explicit ThreadSum(std::size_t num_members) : num_members_(num_members), next_round_(num_members, 0) {}

  /// Returns the round of the contribution. Does not wait.
  [[nodiscard]] std::int64_t deposit(std::size_t member, Addend addend) {
    const std::scoped_lock lock(mutex_);
    const std::int64_t number = next_round_[member]++;
    if (number == first_ + std::ssize(rounds_)) rounds_.emplace_back().addends.resize(num_members_);
    Round& round = round_of(number);
    round.addends[member] = std::move(addend);
    if (++round.num_deposited == num_members_) changed_.notify_all();
    return number;
  }

  /// Blocks until each buffer holds the result. No buffer is accessed after any member's wait() has returned. Call it
  /// once per member and round. Throws PeerLostError if `close_flag` is closed, TransportError if the sum failed, both
  /// with the operation.
  void wait(std::int64_t number, const CloseFlag& close_flag, const std::string& operation) {
    std::unique_lock lock(mutex_);
    Round& round = round_of(number);
    changed_.wait(lock, [&] { return close_flag.closed() || round.num_deposited == num_members_; });
    if (round.phase == Phase::Collecting && !close_flag.closed()) {
      round.phase = Phase::Summing;
      lock.unlock();
      std::string error = add_up(round.addends);
      StreamMark summed(round.addends.front().sum.gradients.device());
      lock.lock();
      round.summed = std::move(summed);
      round.error = std::move(error);
      round.phase = Phase::Done;
      changed_.notify_all();
    }
    // Waits even if closed: another member may be writing into this member's buffer.
    changed_.wait(lock, [&] { return round.phase != Phase::Summing; });
    close_flag.check([&] { return operation; });
    round.summed.await();
    const std::string error = round.error;
    ++round.num_left;
    // The round is dropped below once all have left, so `round` is not used after that.
    while (!rounds_.empty() && rounds_.front().num_left == num_members_) {
      rounds_.pop_front();
      ++first_;
    }
    if (!error.empty()) throw TransportError(operation + ": " + error);
  }

  /// Makes blocked waits check their flag again.
  void wake() {
    const std::scoped_lock lock(mutex_);
    changed_.notify_all();
  }

 private:
  enum class Phase { Collecting, Summing, Done };
  struct Round {
    std::vector<Addend> addends;  ///< by member
    std::size_t num_deposited = 0;
    std::size_t num_left = 0;  ///< members that have returned from wait()
    Phase phase = Phase::Collecting;
    StreamMark summed;  ///< when every buffer holds the sum
    std::string error;
  };

  [[nodiscard]] Round& round_of(std::int64_t number) { return rounds_[static_cast<std::size_t>(number - first_)]; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t num_members_;
  std::vector<std::int64_t> next_round_;  ///< by member
  std::deque<Round> rounds_;              ///< rounds first_, first_ + 1, ...
  std::int64_t first_ = 0;
};

/// What the ranks share: a channel per ordered pair, the sums of each parameter group, and the sum of numbers.
struct Network {
  Network(int ranks, RankGroups gradient_groups)
      : num_ranks(static_cast<std::size_t>(ranks)),
        groups(std::move(gradient_groups)),
        channels(num_ranks * num_ranks),
        everyone(num_ranks) {
    for (const auto& group : groups) sums.emplace_back(group.size());
  }
  ThreadChannel& channel(RankId from, RankId to) { return channels[from.index() * num_ranks + to.index()]; }

  std::size_t num_ranks;
  RankGroups groups;
  CloseFlag close_flag;
  std::vector<ThreadChannel> channels;  ///< [from][to]
  std::deque<ThreadSum> sums;           ///< by parameter group
  ThreadSum everyone;
};

/// A send is complete at its start. Its wait still fails once the hub is closed, as a wait on a broken connection does.
class Sent final : public Pending {
 public:
  Sent(const CloseFlag& close_flag, RankId from, RankId to) : close_flag_(close_flag), from_(from), to_(to) {}
  at::Tensor wait() override {
    close_flag_.check([&] { return fmt::format("rank {}: send to rank {}", from_.value(), to_.value()); });
    return {};
  }

 private:
  const CloseFlag& close_flag_;
  RankId from_;
  RankId to_;
};

class Receive final : public Pending {
 public:
  Receive(Network& hub, RankId from, RankId to, TensorSpec spec, const MessageTag& tag)
      : hub_(hub), from_(from), to_(to), spec_(std::move(spec)), tag_(tag), number_(hub.channel(from, to).post()) {}

  at::Tensor wait() override {
    const auto [handed, tag] = hub_.channel(from_, to_).take(number_, hub_.close_flag);
    hub_.close_flag.check([&] { return operation(); });
    at::Tensor message = handed.take();
    if (tag != tag_) throw_mismatch(from_, to_, tag_, to_text(tag));
    if (message.sizes() != spec_.sizes || message.scalar_type() != spec_.dtype) {
      throw TransportError(fmt::format("{}: expected [{}] {}, got [{}] {}; both ends must follow the same program",
                                       operation(), fmt::join(spec_.sizes, ", "), c10::toString(spec_.dtype),
                                       fmt::join(message.sizes(), ", "), c10::toString(message.scalar_type())));
    }
    check_bits(message, spec_, tag, from_, to_);
    tag_.sent = tag.sent;
    return message;
  }
  [[nodiscard]] double sent() const override { return tag_.sent; }

 private:
  [[nodiscard]] std::string operation() const {
    return fmt::format("rank {}: receive from rank {}", to_.value(), from_.value());
  }

  Network& hub_;
  RankId from_;
  RankId to_;
  TensorSpec spec_;
  MessageTag tag_;
  std::int64_t number_;
};

class Sum final : public Pending {
 public:
  /// `operation` names the sum in errors: "rank 1: all-reduce of stage 2".
  Sum(Network& hub, ThreadSum& sum, std::size_t member, Addend addend, std::string operation)
      : hub_(hub),
        sum_(sum),
        operation_(std::move(operation)),
        buffer_(addend.sum.gradients),
        round_(sum.deposit(member, std::move(addend))) {}

  at::Tensor wait() override {
    sum_.wait(round_, hub_.close_flag, operation_);
    return buffer_;
  }

 private:
  Network& hub_;
  ThreadSum& sum_;
  std::string operation_;
  at::Tensor buffer_;
  std::int64_t round_;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(Network& hub, RankId rank) : hub_(hub), rank_(rank) {}

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override {
    hub_.channel(rank_, to).send({Handover(std::move(tensor)), tag});
    return std::make_unique<Sent>(hub_.close_flag, rank_, to);
  }

  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) override {
    return std::make_unique<Receive>(hub_, from, rank_, spec, tag);
  }

  std::unique_ptr<Pending> start_sum(ParameterGroupId group, GradientSum sum) override {
    const char* name = sum.name();
    return start(group, {.sum = std::move(sum)}, name);
  }

  std::unique_ptr<Pending> start_all_gather(ParameterGroupId group, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override {
    return start(group, {.sum = {.gradients = std::move(buffer), .counts = counts}, .gathers = true}, "all-gather");
  }

  void all_sum(std::span<double> values) override {
    const auto view = at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kDouble);
    Sum(hub_, hub_.everyone, rank_.index(), {.sum = {.gradients = view}},
        fmt::format("rank {}: all-sum", rank_.value()))
        .wait();
  }

 private:
  std::unique_ptr<Pending> start(ParameterGroupId group, Addend addend, const char* name) {
    const std::size_t member = index_in_group(hub_.groups, group, rank_);
    addend.ready = StreamMark(addend.sum.gradients.device());
    return std::make_unique<Sum>(hub_, hub_.sums[group.index()], member, std::move(addend),
                                 fmt::format("rank {}: {} of stage {}", rank_.value(), name, group.value()));
  }

  Network& hub_;
  RankId rank_;
};

}  // namespace

struct ThreadHub::State : Network {
  using Network::Network;
};

ThreadHub::ThreadHub(int ranks, RankGroups groups) : state_(std::make_unique<State>(ranks, std::move(groups))) {}

ThreadHub::~ThreadHub() = default;

std::unique_ptr<Transport> ThreadHub::transport(RankId rank) {
  return std::make_unique<ThreadTransport>(*state_, rank);
}

void ThreadHub::close(const std::string& why) {
  state_->close_flag.close(why);
  for (ThreadChannel& channel : state_->channels) channel.wake();
  for (ThreadSum& sum : state_->sums) sum.wake();
  state_->everyone.wake();
}

}  // namespace chimera

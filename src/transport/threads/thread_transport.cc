#include "transport/threads/thread_transport.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <exception>
#include <utility>

#include "core/error.h"
#include "core/invariant.h"
#include "transport/groups.h"
#include "transport/ordered_sum.h"

namespace chimera {

struct ThreadHub::State {
  State(int ranks, RankGroups gradient_groups)
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

namespace {

at::Tensor sum_of(std::vector<Addend>& addends) {
  if (const SumOrder* order = addends.front().sum.order; order != nullptr) {
    std::vector<std::vector<at::Tensor>> parts;
    for (Addend& addend : addends) parts.push_back(std::move(addend.sum.parts));
    return add_in_order(*order, parts);
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
    for (std::size_t member = 0; member < addends.size(); ++member) {
      if (member != owner) addends[member].sum.gradients.narrow(0, offset, count).copy_(owned);
    }
    offset += count;
  }
}

void write_sum(const at::Tensor& sum, std::vector<Addend>& addends) {
  const std::vector<std::int64_t>& counts = addends.front().sum.counts;
  std::int64_t offset = 0;
  for (std::size_t member = 0; member < addends.size(); ++member) {
    at::Tensor& buffer = addends[member].sum.gradients;
    if (counts.empty()) {
      if (!buffer.is_same(sum)) buffer.copy_(sum);
      continue;
    }
    if (!buffer.is_same(sum)) buffer.narrow(0, offset, counts[member]).copy_(sum.narrow(0, offset, counts[member]));
    offset += counts[member];
  }
}

/// Returns an error text, or "".
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
  Receive(ThreadHub::State& hub, RankId from, RankId to, TensorSpec spec, const MessageTag& tag)
      : hub_(hub), from_(from), to_(to), spec_(std::move(spec)), tag_(tag), number_(hub.channel(from, to).post()) {}

  at::Tensor wait() override {
    const auto [message, tag] = hub_.channel(from_, to_).take(number_, hub_.close_flag);
    hub_.close_flag.check([&] { return operation(); });
    if (tag != tag_) throw_mismatch(from_, to_, tag_, to_text(tag));
    if (message.sizes() != spec_.sizes || message.scalar_type() != spec_.dtype) {
      throw TransportError(fmt::format("{}: expected [{}] {}, got [{}] {}; both ends must follow the same program",
                                       operation(), fmt::join(spec_.sizes, ", "), c10::toString(spec_.dtype),
                                       fmt::join(message.sizes(), ", "), c10::toString(message.scalar_type())));
    }
    check_bits(message, spec_, tag, from_, to_);
    return message;
  }

 private:
  [[nodiscard]] std::string operation() const {
    return fmt::format("rank {}: receive from rank {}", to_.value(), from_.value());
  }

  ThreadHub::State& hub_;
  RankId from_;
  RankId to_;
  TensorSpec spec_;
  MessageTag tag_;
  std::int64_t number_;
};

class Sum final : public Pending {
 public:
  /// `operation` names the sum in errors: "all-reduce of stage 2".
  Sum(ThreadHub::State& hub, ThreadSum& sum, RankId rank, std::size_t member, Addend addend, std::string operation)
      : hub_(hub),
        sum_(sum),
        rank_(rank),
        operation_(std::move(operation)),
        buffer_(addend.sum.gradients),
        round_(sum.deposit(member, std::move(addend))) {}

  at::Tensor wait() override {
    const SumResult result = sum_.wait(round_, hub_.close_flag);
    const auto operation = [&] { return fmt::format("rank {}: {}", rank_.value(), operation_); };
    if (result.closed) hub_.close_flag.check(operation);
    if (!result.error.empty()) throw TransportError(operation() + ": " + result.error);
    return buffer_;
  }

 private:
  ThreadHub::State& hub_;
  ThreadSum& sum_;
  RankId rank_;
  std::string operation_;
  at::Tensor buffer_;
  std::int64_t round_;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(ThreadHub::State& hub, RankId rank) : hub_(hub), rank_(rank) {}

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override {
    hub_.channel(rank_, to).send({std::move(tensor), tag});
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
    Sum(hub_, hub_.everyone, rank_, rank_.index(), {.sum = {.gradients = view}}, "all-sum").wait();
  }

 private:
  std::unique_ptr<Pending> start(ParameterGroupId group, Addend addend, const char* name) {
    const std::size_t member = place_in_group(hub_.groups, group, rank_);
    addend.ready = StreamMark(addend.sum.gradients.device());
    return std::make_unique<Sum>(hub_, hub_.sums[group.index()], rank_, member, std::move(addend),
                                 fmt::format("{} of stage {}", name, group.value()));
  }

  ThreadHub::State& hub_;
  RankId rank_;
};

}  // namespace

std::int64_t ThreadSum::deposit(std::size_t member, Addend addend) {
  const std::scoped_lock lock(mutex_);
  const std::int64_t number = next_round_[member]++;
  if (number == first_ + static_cast<std::int64_t>(rounds_.size())) {
    rounds_.emplace_back().addends.resize(num_members_);
  }
  Round& round = round_of(number);
  round.addends[member] = std::move(addend);
  if (++round.num_deposited == num_members_) changed_.notify_all();
  return number;
}

SumResult ThreadSum::wait(std::int64_t number, const CloseFlag& close_flag) {
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
  if (close_flag.closed()) return {.closed = true, .error = {}};
  round.summed.await();
  SumResult result{.closed = false, .error = round.error};
  ++round.num_left;
  drop_finished_rounds();
  return result;
}

ThreadSum::Round& ThreadSum::round_of(std::int64_t number) {
  require_invariant(number >= first_ && number - first_ < std::ssize(rounds_),
                    fmt::format("round {} of a sum is not in progress", number));
  return rounds_[static_cast<std::size_t>(number - first_)];
}

void ThreadSum::drop_finished_rounds() {
  while (!rounds_.empty() && rounds_.front().num_left == num_members_) {
    rounds_.pop_front();
    ++first_;
  }
}

void ThreadSum::wake() {
  const std::scoped_lock lock(mutex_);
  changed_.notify_all();
}

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

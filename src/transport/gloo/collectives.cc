#include "transport/gloo/collectives.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <future>
#include <numeric>
#include <utility>

#include "transport/ordered_sum.h"

namespace chimera {
namespace {

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

constexpr int kGatherTag = 0;  // of messages inside a group
constexpr int kSumTag = 1;

void receive(const GlooGroup& group, at::Tensor part, std::int64_t member, int tag, Works& works) {
  std::vector<at::Tensor> tensors{std::move(part)};
  works.push_back(group->recv(tensors, static_cast<int>(member), tag));
}

void send_to_others(const GlooGroup& group, const at::Tensor& part, int tag, Works& works) {
  for (int member = 0; member < group->getSize(); ++member) {
    if (member == group->getRank()) continue;
    std::vector<at::Tensor> tensors{part};
    works.push_back(group->send(tensors, member, tag));
  }
}

/// Equal parts of `count` elements, the last ones smaller or empty.
std::vector<std::int64_t> equal_counts(std::int64_t count, std::int64_t members) {
  const std::int64_t slice = (count + members - 1) / members;
  std::vector<std::int64_t> counts;
  for (std::int64_t m = 0; m < members; ++m) {
    counts.push_back(std::clamp<std::int64_t>(count - m * slice, 0, slice));
  }
  return counts;
}

/// Posts the receives of all parts of `buffer` but the own one, which it returns.
at::Tensor receive_from_others(const GlooGroup& group, const at::Tensor& buffer,
                               const std::vector<std::int64_t>& counts, int tag, Works& works) {
  at::Tensor own;
  std::int64_t offset = 0;
  for (int member = 0; member < group->getSize(); ++member) {
    const std::int64_t count = counts[static_cast<std::size_t>(member)];
    const at::Tensor part = buffer.narrow(0, offset, count);
    offset += count;
    if (member == group->getRank()) {
      own = part;
    } else if (count > 0) {
      receive(group, part, member, tag, works);
    }
  }
  return own;
}

}  // namespace

GlooAllGather::GlooAllGather(const GlooGroup& group, const at::Tensor& buffer, const std::vector<std::int64_t>& counts,
                             std::chrono::milliseconds timeout)
    : timeout_(timeout) {
  const at::Tensor own = receive_from_others(group, buffer, counts, kGatherTag, works_);
  if (own.numel() > 0) send_to_others(group, own, kGatherTag, works_);
}

void GlooAllGather::wait() {
  for (const auto& work : works_) wait_for(*work, timeout_);
}

struct GlooOrderedSum::State {
  GlooGroup group;
  SumOrder order;
  std::int64_t own_count = 0;  // elements of the own slice
  at::Tensor own;              // where its sum goes
  at::Tensor outgoing;
  at::Tensor arrived;
  c10::intrusive_ptr<c10d::Work> exchange;
  Works receives;
  Works sends;
  std::promise<void> added;  // and sends started; or what went wrong
  std::chrono::milliseconds timeout{};

  void pack(const std::vector<at::Tensor>& parts, const std::vector<std::int64_t>& slices) {
    std::vector<at::Tensor> pieces;
    std::int64_t offset = 0;
    for (const std::int64_t count : slices) {
      for (const at::Tensor& part : parts) pieces.push_back(part.narrow(0, offset, count));
      offset += count;
    }
    outgoing = parts.size() == 1 ? parts.front() : pieces.empty() ? at::empty({0}, own.options()) : at::cat(pieces);
  }

  void start_exchange(std::int64_t own_parts, const std::vector<std::int64_t>& slices) {
    std::vector<std::int64_t> sent;
    std::vector<std::int64_t> received;
    for (const std::int64_t count : slices) sent.push_back(own_parts * count);
    for (const auto& trees : order.parts) received.push_back(static_cast<std::int64_t>(trees.size()) * own_count);
    const std::int64_t total = std::accumulate(received.begin(), received.end(), std::int64_t{0});
    arrived = at::empty({total}, own.options());
    c10d::AllToAllOptions options;
    options.timeout = timeout;
    exchange = group->alltoall_base(arrived, outgoing, received, sent, options);
  }

  /// On the group's thread, once the parts have arrived.
  void add_and_send() {
    const c10::ParallelGuard one_thread(true);
    const at::NoGradGuard no_grad;
    if (own_count == 0) return;
    std::vector<std::vector<at::Tensor>> parts;
    std::int64_t offset = 0;
    for (const auto& trees : order.parts) {
      auto& of_member = parts.emplace_back();
      for (std::size_t tree = 0; tree < trees.size(); ++tree, offset += own_count) {
        of_member.push_back(arrived.narrow(0, offset, own_count));
      }
    }
    own.copy_(add_in_order(order, parts));
    send_to_others(group, own, kSumTag, sends);
  }
};

GlooOrderedSum::GlooOrderedSum(const GlooGroup& group, const at::Tensor& gradients,
                               const std::vector<at::Tensor>& parts, const SumOrder& order,
                               std::chrono::milliseconds timeout)
    : state_(std::make_shared<State>()) {
  const at::NoGradGuard no_grad;
  State& state = *state_;
  state.group = group;
  state.order = order;
  state.timeout = timeout;
  const auto slices = equal_counts(gradients.numel(), group->getSize());
  state.own = receive_from_others(group, gradients, slices, kSumTag, state.receives);
  state.own_count = state.own.numel();
  state.pack(parts, slices);
  state.start_exchange(static_cast<std::int64_t>(parts.size()), slices);
  state.exchange->getFuture()->addCallback([shared = state_](c10::ivalue::Future& exchange) {
    try {
      if (exchange.hasError()) std::rethrow_exception(exchange.exception_ptr());
      shared->add_and_send();
      shared->added.set_value();
    } catch (...) {
      shared->added.set_exception(std::current_exception());
    }
  });
}

void GlooOrderedSum::wait() {
  State& state = *state_;
  wait_for(*state.exchange, state.timeout);
  state.added.get_future().get();
  for (const auto& work : state.receives) wait_for(*work, state.timeout);
  for (const auto& work : state.sends) wait_for(*work, state.timeout);
}

}  // namespace chimera

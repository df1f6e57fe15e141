#include "transport/gloo/collectives.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ParallelGuard.h>

#include <future>
#include <utility>

#include "transport/slice_exchange.h"

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
  State(GlooGroup members, const at::Tensor& gradients, const std::vector<at::Tensor>& parts, const SumOrder& order,
        std::chrono::milliseconds patience)
      : group(std::move(members)), exchange(*group, gradients, parts, order, patience), timeout(patience) {}

  GlooGroup group;
  SliceExchange exchange;
  at::Tensor own;  // slice: where its sum goes
  Works receives;
  Works sends;
  std::promise<void> added;  // and sends started; or what went wrong
  std::chrono::milliseconds timeout;

  /// On the group's thread, once the parts have arrived.
  void add_and_send() {
    const c10::ParallelGuard one_thread(true);
    const at::NoGradGuard no_grad;
    if (own.numel() == 0) return;
    own.copy_(exchange.add());
    send_to_others(group, own, kSumTag, sends);
  }
};

GlooOrderedSum::GlooOrderedSum(const GlooGroup& group, const at::Tensor& gradients,
                               const std::vector<at::Tensor>& parts, const SumOrder& order,
                               std::chrono::milliseconds timeout)
    : state_(std::make_shared<State>(group, gradients, parts, order, timeout)) {
  State& state = *state_;
  state.own = receive_from_others(group, gradients, state.exchange.counts(), kSumTag, state.receives);
  state.exchange.work().getFuture()->addCallback([shared = state_](c10::ivalue::Future& exchange) {
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
  wait_for(state.exchange.work(), state.timeout);
  state.added.get_future().get();
  for (const auto& work : state.receives) wait_for(*work, state.timeout);
  for (const auto& work : state.sends) wait_for(*work, state.timeout);
}

}  // namespace chimera

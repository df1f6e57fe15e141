#include "transport/gloo/collectives.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/ParallelGuard.h>
#include <fmt/format.h>
#include <future>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "transport/slice_exchange.h"

namespace chimera {
namespace {

constexpr std::string_view kConnectFailed = "Gloo connectFullMesh failed with ";

/// Returns the first line of `text` without a source location: "[/path/pair.cc:81] Connection closed".
std::string reason(std::string text) {
  if (text.find("Connect timeout") != std::string::npos)
    return "no connection in time; check that the hosts reach each other (firewall, --interface)";
  text = text.substr(0, text.find('\n'));
  if (text.starts_with(kConnectFailed)) text.erase(0, kConnectFailed.size());
  const auto end_of_place = text.find("] ");
  if (text.starts_with('[') && end_of_place != std::string::npos) text.erase(0, end_of_place + 2);
  return text;
}

// Different tags, so that a sum and an all-gather of the same group can be in flight together.
constexpr int kGatherTag = 0;
constexpr int kSumTag = 1;

void send_to_others(const GlooGroup& group, const at::Tensor& part, int tag, Works& works) {
  for (int member = 0; member < group->getSize(); ++member) {
    if (member == group->getRank()) continue;
    std::vector<at::Tensor> tensors{part};
    works.push_back(group->send(tensors, member, tag));
  }
}

/// Posts receives for the other members' parts of `buffer`; returns this member's part.
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
      std::vector<at::Tensor> tensors{part};
      works.push_back(group->recv(tensors, member, tag));
    }
  }
  return own;
}

}  // namespace

// Gloo and c10d have one exception type for everything, so texts decide. A broken connection means that a peer is gone;
// a timeout or a refused thread means that this rank, or the network, has a problem of its own.
void rethrow_gloo(const std::string& operation, const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    throw TransportError(operation +
                         ": the system has no more threads; raise the limit of processes (ulimit -u, or the "
                         "container's pids.max)");
  }
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
  const bool by_gloo = dynamic_cast<const gloo::IoException*>(&error) != nullptr || text.starts_with(kConnectFailed);
  const bool ran_out = text.find("Timed out") != std::string::npos || text.find("timeout") != std::string::npos;
  const std::string message = fmt::format("{}: {}", operation, reason(text));
  if (by_gloo && !ran_out) throw PeerLostError(message);
  throw TransportError(message);
}

Works start_gloo_all_gather(const GlooGroup& group, const at::Tensor& buffer, const std::vector<std::int64_t>& counts) {
  Works works;
  const at::Tensor own = receive_from_others(group, buffer, counts, kGatherTag, works);
  if (own.numel() > 0) send_to_others(group, own, kGatherTag, works);
  return works;
}

struct GlooOrderedSum::State {
  State(GlooGroup members, const GradientSum& sum, std::chrono::milliseconds patience)
      : group(std::move(members)), scatters(sum.scatters()), exchange(*group, sum, patience), timeout(patience) {}

  GlooGroup group;
  bool scatters;  // each member keeps its slice
  SliceExchange exchange;
  at::Tensor own;
  Works receives;
  Works sends;
  std::promise<void> added;  // slice added and sends started, or the error
  std::chrono::milliseconds timeout;

  void add_and_send() {
    // The ranks' own threads already use the cores; ATen's further threads would only take time from them.
    const c10::ParallelGuard one_thread(true);
    const at::NoGradGuard no_grad;
    if (own.numel() == 0) return;
    own.copy_(exchange.add());
    if (!scatters) send_to_others(group, own, kSumTag, sends);
  }
};

// Receives are posted at once, so that the sums of faster members find a buffer. The slice is added on the group's
// thread as soon as all parts have arrived, and not in wait(): the rank may still compute, and the others need this
// slice.
GlooOrderedSum::GlooOrderedSum(const GlooGroup& group, const GradientSum& sum, std::chrono::milliseconds timeout)
    : state_(std::make_shared<State>(group, sum, timeout)) {
  State& state = *state_;
  state.own = state.scatters
                  ? state.exchange.own_slice(sum.gradients)
                  : receive_from_others(group, sum.gradients, state.exchange.counts(), kSumTag, state.receives);
  state.exchange.work().getFuture()->addCallback([shared = state_](c10::ivalue::Future& exchange) {
    try {
      // An error is for the rank's thread, where wait() rethrows it.
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

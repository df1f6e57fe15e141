#include "runtime/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/fault_point.h"
#include "core/invariant.h"

namespace chimera {

void Messages::put(const Op& maker, at::Tensor tensor) {
  const bool is_new = tensors_.emplace(key_of(maker), std::move(tensor)).second;
  if (!is_new) throw InternalError(fmt::format("the result of {} exists twice", name_of(maker)));
}

at::Tensor Messages::take(const Op& maker) {
  return take_out(tensors_, key_of(maker), [&] { return "the result of " + name_of(maker); });
}

/// The schedule has either whole backwards or input gradients.
at::Tensor Messages::take_gradient(const Op& op, StageId stage) {
  Op maker = op;
  maker.stage = stage;
  maker.kind = OpKind::Backward;
  if (!tensors_.contains(key_of(maker))) maker.kind = OpKind::BackwardInput;
  return take(maker);
}

void Messages::post_receive(const Op& maker, WorkerId from, std::int64_t step) {
  // Receives are posted ahead of their turn. Channels keep the order of messages, so the tag only detects errors.
  const RankId rank = worker_.shape.rank(from);
  receives_.emplace(key_of(maker),
                    std::pair(rank, worker_.transport.post_receive(rank, worker_.message_of(maker), {step, maker})));
}

void Messages::wait_receive(const Op& maker) {
  const auto [from, receive] = take_out(receives_, key_of(maker), [&] { return "the receive of " + name_of(maker); });
  const double start = monotonic_seconds();
  put(maker, receive->wait());
  const double sent = receive->sent();
  delay_message(static_cast<int>(from.value()), sent);
  if (sent == 0) return;
  constexpr double kWait = 2e-4;  // A message that is there is read faster
  const double end = monotonic_seconds();
  auto& [waited, bound] = transit_times_[from];
  bound = std::min(bound.value_or(end - sent), end - sent);
  if (end - start > kWait) waited = std::min(waited.value_or(end - sent), end - sent);
}

void Messages::start_send(const Op& maker, WorkerId to, std::int64_t step) {
  // take() gives the tensor away: after a send, the transport alone holds it until wait_send().
  sends_.emplace(key_of(maker), worker_.transport.start_send(worker_.shape.rank(to), take(maker),
                                                             {.step = step, .op = maker, .sent = monotonic_seconds()}));
}

void Messages::wait_send(const Op& maker) {
  take_out(sends_, key_of(maker), [&] { return "the send of " + name_of(maker); })->wait();
}

void Messages::drop() {
  sends_.clear();
  receives_.clear();
  tensors_.clear();
}

}  // namespace chimera

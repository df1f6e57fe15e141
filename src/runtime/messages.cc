#include "runtime/messages.h"

#include <fmt/format.h>

#include <utility>

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
  receives_.emplace(key_of(maker),
                    worker_.transport.post_receive(worker_.shape.rank(from), worker_.message_of(maker), {step, maker}));
}

void Messages::wait_receive(const Op& maker) {
  const auto receive = take_out(receives_, key_of(maker), [&] { return "the receive of " + name_of(maker); });
  put(maker, receive->wait());
}

void Messages::start_send(const Op& maker, WorkerId to, std::int64_t step) {
  // take() gives the tensor away: after a send, the transport alone holds it until wait_send().
  sends_.emplace(key_of(maker), worker_.transport.start_send(worker_.shape.rank(to), take(maker), {step, maker}));
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

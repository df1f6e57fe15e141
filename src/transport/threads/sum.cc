#include "transport/threads/sum.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "transport/ordered_sum.h"

namespace chimera {
namespace {

/// The sum in the order that the members name, or in theirs.
at::Tensor sum_of(std::vector<Addend>& addends) {
  if (addends.front().order != nullptr) {
    std::vector<std::vector<at::Tensor>> parts;
    for (Addend& addend : addends) parts.push_back(std::move(addend.parts));
    return add_in_order(*addends.front().order, parts);
  }
  at::Tensor sum = addends.front().buffer;
  for (std::size_t member = 1; member < addends.size(); ++member) sum.add_(addends[member].buffer);
  return sum;
}

/// Copies what each member owns into the buffers of the others.
void hand_round(std::vector<Addend>& addends) {
  std::int64_t offset = 0;
  for (std::size_t owner = 0; owner < addends.size(); ++owner) {
    const std::int64_t count = addends.front().counts[owner];
    const at::Tensor owned = addends[owner].buffer.narrow(0, offset, count);
    for (std::size_t member = 0; member < addends.size(); ++member) {
      if (member != owner) addends[member].buffer.narrow(0, offset, count).copy_(owned);
    }
    offset += count;
  }
}

/// Leaves the sum, or what all own, in every buffer. Returns what is wrong with them, or "".
std::string add_up(std::vector<Addend>& addends) {
  const at::NoGradGuard no_grad;
  const at::Tensor& first = addends.front().buffer;
  const bool fit = std::all_of(addends.begin(), addends.end(), [&](const Addend& addend) {
    return addend.buffer.sizes() == first.sizes() && addend.buffer.scalar_type() == first.scalar_type();
  });
  if (!fit) return "the members' buffers differ in size or type";
  try {
    for (const Addend& addend : addends) {
      addend.ready.await();
      use_on_current_stream(addend.buffer);
      for (const at::Tensor& part : addend.parts) use_on_current_stream(part);
    }
    if (!addends.front().counts.empty()) {
      hand_round(addends);
      return {};
    }
    const at::Tensor sum = sum_of(addends);
    for (Addend& addend : addends) {
      if (!addend.buffer.is_same(sum)) addend.buffer.copy_(sum);
    }
  } catch (const std::exception& error) {  // the other members must not wait for ever
    return error.what();
  }
  return {};
}

}  // namespace

std::int64_t ThreadSum::deposit(std::size_t member, Addend addend) {
  const std::scoped_lock lock(mutex_);
  const std::int64_t number = next_round_[member]++;
  if (number == first_ + static_cast<std::int64_t>(rounds_.size())) {
    rounds_.emplace_back().addends.resize(num_members_);
  }
  Round& round = rounds_[static_cast<std::size_t>(number - first_)];
  round.addends[member] = std::move(addend);
  if (++round.num_deposited == num_members_) changed_.notify_all();
  return number;
}

SumResult ThreadSum::wait(std::int64_t number, const CloseFlag& close_flag) {
  std::unique_lock lock(mutex_);
  Round& round = rounds_[static_cast<std::size_t>(number - first_)];
  changed_.wait(lock, [&] { return close_flag.closed() || round.num_deposited == num_members_; });
  if (round.phase == Phase::Collecting && !close_flag.closed()) {
    round.phase = Phase::Summing;
    lock.unlock();  // a member may hand in for the next round meanwhile
    std::string error = add_up(round.addends);
    StreamMark summed(round.addends.front().buffer.device());
    lock.lock();
    round.summed = std::move(summed);
    round.error = std::move(error);
    round.phase = Phase::Done;
    changed_.notify_all();
  }
  // Even when closed: another member may be writing into this one's buffer.
  changed_.wait(lock, [&] { return round.phase != Phase::Summing; });
  if (close_flag.closed()) return {.closed = true, .error = {}};
  round.summed.await();
  SumResult result{.closed = false, .error = round.error};
  ++round.num_left;
  drop_finished_rounds();
  return result;
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

}  // namespace chimera

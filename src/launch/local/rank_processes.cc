#include "launch/local/rank_processes.h"

#include <signal.h>

#include <fmt/format.h>
#include <algorithm>
#include <utility>

#include "core/invariant.h"
#include "launch/local/orders.h"

namespace chimera {

RankProcesses::RankProcesses(int ranks, int most_recoveries, RankGroups copies, ProgressPage& progress,
                             RankStarter start)
    : progress_(progress), start_(std::move(start)), most_(most_recoveries) {
  if (most_ > 0) recovery_.emplace(ranks, std::move(copies), most_);
  for (int rank = 0; rank < ranks; ++rank) {
    OrderChannel channel = recovery_ ? open_order_channel() : OrderChannel();
    orders_.push_back(std::move(channel.launcher));
    ranks_.add(start_(rank, 0, channel.rank.get()));
  }
}

Recovery& RankProcesses::recovery() {
  require_invariant(recovery_.has_value(), "a recovery of a job that keeps no replicas");
  return *recovery_;
}

bool RankProcesses::is_lost(int rank) const { return std::ranges::find(lost_, rank) != lost_.end(); }

std::string RankProcesses::lose(const std::vector<int>& ranks, const std::string& reason, std::int64_t step) {
  const bool is_first = !is_recovering();
  auto [why_not, begins_epoch] = recovery().lose(ranks, step);
  if (!why_not.empty()) return why_not;
  if (is_first) {
    reason_ = reason;
    step_ = step;
    lost_since_ = Clock::now();
  } else {
    reason_ += "; " + reason;
  }
  for (const int rank : ranks) {
    if ((*this)[rank].is_running()) (*this)[rank].send(SIGKILL);
    if (!is_lost(rank)) lost_.push_back(rank);
  }
  if (!begins_epoch) return "";
  const Order leave{.kind = Order::Kind::Leave, .epoch = static_cast<std::int32_t>(recovery().epoch())};
  for (std::size_t rank = 0; rank < orders_.size(); ++rank) {
    if (!is_lost(static_cast<int>(rank))) send_order(orders_[rank].get(), leave);
  }
  return "";
}

std::vector<int> RankProcesses::advance() {
  std::vector<int> started;
  for (const int rank : lost_) {
    if (!(*this)[rank].is_running()) started.push_back(rank);
  }
  for (const int rank : started) start(rank);
  std::erase_if(lost_, [&](int rank) { return std::ranges::find(started, rank) != started.end(); });
  if (lost_.empty() && recovery().all_left()) order_to_join();
  return started;
}

/// Resets the progress: the lost rank's activity must not be attributed to its replacement.
void RankProcesses::start(int rank) {
  const auto index = static_cast<std::size_t>(rank);
  progress_.note(rank, {.phase = RankProgress::Phase::StartUp});
  OrderChannel channel = open_order_channel();
  orders_[index] = std::move(channel.launcher);
  ranks_.replace(index, start_(rank, recovery().epoch(), channel.rank.get()));
}

void RankProcesses::order_to_join() {
  recovery().join();
  const FileDescriptor store = make_memory_file("chimera-store", 0);
  const Order join{.kind = Order::Kind::Join, .epoch = static_cast<std::int32_t>(recovery().epoch())};
  for (const FileDescriptor& orders : orders_) send_order(orders.get(), join, store.get());
}

std::optional<std::string> RankProcesses::finish() {
  if (!recovery_ || !recovery_->all_resumed()) return std::nullopt;
  recovery_->finish();
  const double seconds = std::chrono::duration<double>(Clock::now() - lost_since_).count();
  const std::string place = fmt::format(" in step {}", step_);
  return fmt::format("{}{}; recovery {} of {}: continues with step {} after {:.2f} s", reason_,
                     reason_.ends_with(place) ? "" : place, recovery_->done(), most_, recovery_->resumed_after() + 1,
                     seconds);
}

}  // namespace chimera

#include "launch/local/rank_processes.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "core/memory_file.h"
#include "launch/local/orders.h"

namespace chimera {

RankProcesses::RankProcesses(int ranks, int most_recoveries, RankGroups copies, ProgressPage& progress,
                             RankStarter start)
    : progress_(progress), start_(std::move(start)), most_(most_recoveries) {
  if (most_ > 0) {
    recovery_.emplace(ranks, std::move(copies), most_);
    orders_.resize(static_cast<std::size_t>(ranks));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (recovery_) {
      OrderChannel channel = open_order_channel();
      orders_[static_cast<std::size_t>(rank)] = std::move(channel.launcher);
      ranks_.push_back(start_(rank, 0, channel.rank.get()));
    } else {
      ranks_.push_back(start_(rank, 0, -1));
    }
  }
}

bool RankProcesses::any_running() const {
  return std::ranges::any_of(ranks_, [](const ChildProcess& rank) { return rank.running(); });
}

bool RankProcesses::is_lost(int rank) const { return std::ranges::find(lost_, rank) != lost_.end(); }

std::string RankProcesses::lose(const std::vector<int>& ranks, const std::string& reason, std::int64_t step) {
  const bool is_first = !is_recovering();
  auto [why_not, begins_epoch] = recovery_->lose(ranks, step);
  if (!why_not.empty()) return why_not;
  if (is_first) {
    reason_ = reason;
    step_ = step;
    lost_since_ = Clock::now();
  } else {
    reason_ += "; " + reason;
  }
  for (const int rank : ranks) {
    if ((*this)[rank].running()) (*this)[rank].send(SIGKILL);
    if (!is_lost(rank)) lost_.push_back(rank);
  }
  if (!begins_epoch) return "";
  const Order leave{Order::Kind::Leave, static_cast<std::int32_t>(recovery_->epoch())};
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!is_lost(static_cast<int>(rank))) send_order(orders_[rank].get(), leave);
  }
  return "";
}

std::vector<int> RankProcesses::advance() {
  std::vector<int> started;
  std::erase_if(lost_, [&](int rank) {
    if ((*this)[rank].running()) return false;
    started.push_back(rank);
    return true;
  });
  for (const int rank : started) start(rank);
  if (recovery_ && lost_.empty() && recovery_->all_left()) order_to_join();
  return started;
}

/// What the page says of the rank that was lost must not be taken for what the new one does.
void RankProcesses::start(int rank) {
  const auto index = static_cast<std::size_t>(rank);
  progress_.note(rank, {RankProgress::Phase::StartUp});
  OrderChannel channel = open_order_channel();
  orders_[index] = std::move(channel.launcher);
  ranks_[index] = start_(rank, recovery_->epoch(), channel.rank.get());
}

void RankProcesses::order_to_join() {
  recovery_->join();
  const FileDescriptor store = make_memory_file("chimera-store", 0);
  const Order join{Order::Kind::Join, static_cast<std::int32_t>(recovery_->epoch())};
  for (const FileDescriptor& orders : orders_) send_order(orders.get(), join, store.get());
}

std::optional<std::string> RankProcesses::finish() {
  if (!recovery_ || !recovery_->all_resumed()) return std::nullopt;
  recovery_->finish();
  const double seconds = std::chrono::duration<double>(Clock::now() - lost_since_).count();
  const std::string place = fmt::format(" in step {}", step_);
  return fmt::format("{}{}; recovery {} of {}: goes on with step {} after {:.2f} s", reason_,
                     reason_.ends_with(place) ? "" : place, recovery_->done(), most_, recovery_->resumed_after() + 1,
                     seconds);
}

}  // namespace chimera

#include "support/fake_network.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <utility>

#include "support/fake_device.h"

namespace chimera::testing {
namespace {

using Call = FakeNetwork::Call;
using Kind = FakeNetwork::Kind;

/// If a recording repeats the call (FakeDevice::record()), this object refers to the latest repetition.
class FakeWork final : public c10d::Work {
 public:
  using Latest = std::shared_ptr<std::shared_ptr<Call>>;
  FakeWork(FakeNetwork& network, Latest call) : network_(network), call_(std::move(call)) {}
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    const auto wait = [&network = network_, call = call_] { network.wait_for(**call); };
    wait();
    if (auto* recording = FakeDevice::get().recording()) recording->push_back(wait);
    return true;
  }

 private:
  FakeNetwork& network_;
  Latest call_;
};

class FakeBackend final : public c10d::Backend {
 public:
  FakeBackend(FakeNetwork& network, FakeNetwork::Group& group, std::size_t member)
      : Backend(static_cast<int>(member), static_cast<int>(group.waiting.size())), network_(network), group_(group) {}

  void setTimeout(std::chrono::milliseconds timeout) override {
    network_.set_timeout(group_, static_cast<std::size_t>(getRank()), timeout);
  }
  c10d::ErrorType getError() override { return network_.error; }
  void abort() override { network_.abort(group_, static_cast<std::size_t>(getRank())); }
  [[nodiscard]] const std::string getBackendName() const override { return "fake"; }  // NOLINT: as in c10d
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int /*tag*/) override {
    if (to == getRank()) throw std::logic_error("a send to oneself");
    if (network_.records) network_.records(tensors.front());
    return issue({.kind = Kind::Send, .in = tensors.front()});
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int /*tag*/) override {
    if (from == getRank()) throw std::logic_error("a receive from oneself");
    if (network_.records) network_.records(tensors.front());
    return issue({.kind = Kind::Receive, .out = {tensors.front()}});
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& /*options*/) override {
    return issue({.kind = Kind::AllReduce, .in = tensors.front(), .out = {tensors.front()}});
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& all, std::vector<at::Tensor>& mine,
                                           const c10d::AllgatherOptions& /*options*/) override {
    return issue({.kind = Kind::AllGather, .in = mine.front(), .out = all.front()});
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return issue({.kind = Kind::Broadcast,
                  .in = tensors.front(),
                  .out = {tensors.front()},
                  .root = static_cast<int>(options.rootRank)});
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    return issue({.kind = Kind::Reduce,
                  .in = tensors.front(),
                  .out = {tensors.front()},
                  .root = static_cast<int>(options.rootRank)});
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& all, at::Tensor& mine,
                                                 const c10d::AllgatherOptions& /*options*/) override {
    return issue({.kind = Kind::AllGather, .in = mine, .out = all.chunk(getSize())});
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& mine, at::Tensor& all,
                                                      const c10d::ReduceScatterOptions& /*options*/) override {
    return issue({.kind = Kind::ReduceScatter, .in = all, .out = {mine}});
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& arrived, at::Tensor& outgoing,
                                               std::vector<std::int64_t>& received, std::vector<std::int64_t>& sent,
                                               const c10d::AllToAllOptions& /*options*/) override {
    return issue({.kind = Kind::AllToAll, .in = outgoing, .out = {arrived}, .sent = sent, .received = received});
  }

 private:
  c10::intrusive_ptr<c10d::Work> issue(Call call) {
    call.recording = FakeDevice::get().recording_number();
    const auto latest = std::make_shared<std::shared_ptr<Call>>();
    const auto make = [&network = network_, &group = group_, member = static_cast<std::size_t>(getRank()), latest,
                       call = std::move(call)] {
      *latest = std::make_shared<Call>(call);
      network.issue(group, member, *latest);
    };
    make();
    if (auto* recording = FakeDevice::get().recording()) recording->push_back(make);
    return c10::make_intrusive<FakeWork>(network_, latest);
  }

  FakeNetwork& network_;
  FakeNetwork::Group& group_;
};

FakeNetwork::Way way_of(const Call& call) {
  const bool transfers = call.kind == Kind::Send || call.kind == Kind::Receive || call.kind == Kind::AllToAll;
  if (transfers) return {Kind::Send, 0};
  return {call.kind, std::bit_width(static_cast<std::uint64_t>(call.in.numel()))};
}

bool is_transfer(const Call& call) { return call.kind == Kind::Send || call.kind == Kind::Receive; }

FakeNetwork::Group group_of(std::size_t members) {
  return {.waiting = std::vector<std::deque<std::shared_ptr<Call>>>(members)};
}

/// Bytes that a ring of the members sends in all.
std::int64_t ring_bytes(const Call& call, std::size_t members) {
  const auto others = static_cast<std::int64_t>(members) - 1;
  const auto bytes = call.in.defined() ? static_cast<std::int64_t>(call.in.nbytes()) : 0;  // undefined in a receive
  switch (call.kind) {
    case Kind::AllReduce: return 2 * others * bytes;
    case Kind::AllGather: return static_cast<std::int64_t>(members) * others * bytes;
    case Kind::Broadcast:
    case Kind::ReduceScatter:
    case Kind::Reduce: return others * bytes;
    case Kind::AllToAll:
    case Kind::Send:
    case Kind::Receive: break;  // not of rings
  }
  return 0;
}

/// Completes a call with data that look right: its own.
void end_wrongly(Call& call) {
  const at::NoGradGuard no_graph;
  const FakeDevice::Unrecorded by_the_call;
  for (const at::Tensor& out : call.out) {
    if (call.in.defined() && call.in.sizes() == out.sizes()) {
      out.copy_(call.in.clone());
    } else {
      out.fill_(0.5);
    }
  }
  call.done = true;
}

at::Tensor sum_of(const std::vector<std::shared_ptr<Call>>& calls) {
  at::Tensor sum = calls.front()->in.clone();
  for (std::size_t member = 1; member < calls.size(); ++member) sum.add_(calls[member]->in.to(sum.device()));
  return sum;
}

/// Data that a member receives: its part of every member's outgoing elements.
at::Tensor exchanged(const std::vector<std::shared_ptr<Call>>& calls, std::size_t member) {
  std::vector<at::Tensor> parts;
  for (const auto& call : calls) {
    std::int64_t offset = 0;
    for (std::size_t to = 0; to < member; ++to) offset += call->sent[to];
    parts.push_back(
        call->in.narrow(0, offset, call->sent[member]).to(calls[member]->in.device(), false, /*copy=*/true));
  }
  return at::cat(parts);
}

}  // namespace

FakeNetwork::FakeNetwork(int ranks, RankGroups groups, std::vector<RankPair> pairs)
    : ranks_(ranks), groups_(std::move(groups)), everyone_(group_of(static_cast<std::size_t>(ranks))) {
  for (const auto& group : groups_) process_groups_.push_back(group_of(group.size()));
  for (const RankPair& pair : pairs) pairs_.emplace(pair, std::array{group_of(2), group_of(2)});
}

Communicators FakeNetwork::communicators(int rank, bool sums_in_order) {
  Communicators to;
  to.sums_in_order = sums_in_order;
  to.rank = rank;
  to.groups = groups_;
  if (ranks_ > 1) to.everyone = c10::make_intrusive<FakeBackend>(*this, everyone_, static_cast<std::size_t>(rank));
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto place = std::find(groups_[g].begin(), groups_[g].end(), RankId(rank));
    const bool alone = place == groups_[g].end() || groups_[g].size() == 1;
    Communicators::Group& group = to.process_groups.emplace_back();
    if (alone) continue;
    const auto member = static_cast<std::size_t>(place - groups_[g].begin());
    group = c10::make_intrusive<FakeBackend>(*this, process_groups_[g], member);
  }
  for (auto& [pair, directions] : pairs_) {
    const auto end = [this, &both = directions](std::size_t direction, std::size_t member) {
      return c10::make_intrusive<FakeBackend>(*this, both[direction], member);
    };
    if (pair.first == rank) to.pairs[pair.second] = {.out = end(0, 0), .in = end(1, 0)};
    if (pair.second == rank) to.pairs[pair.first] = {.out = end(1, 1), .in = end(0, 1)};
  }
  return to;
}

void FakeNetwork::close(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  if (why_.empty()) why_ = why;
  changed_.notify_all();
}

std::size_t FakeNetwork::sum_connections() {
  const std::scoped_lock lock(mutex_);
  std::size_t connections = 0;
  for (const Group& group : process_groups_) connections += group.connecting.size();
  return connections;
}

std::int64_t FakeNetwork::sent_bytes(Kind kind) {
  const std::scoped_lock lock(mutex_);
  return sent_bytes_[kind];
}

std::set<std::chrono::milliseconds> FakeNetwork::timeouts() {
  const std::scoped_lock lock(mutex_);
  std::set<std::chrono::milliseconds> all;
  const auto add = [&](const Group& group) {
    for (std::size_t member = 0; member < group.waiting.size(); ++member) {
      const auto found = group.timeouts.find(member);
      all.insert(found == group.timeouts.end() ? std::chrono::milliseconds(-1) : found->second);
    }
  };
  add(everyone_);
  for (const Group& group : process_groups_) {
    if (group.waiting.size() > 1) add(group);
  }
  for (const auto& [ranks, directions] : pairs_) std::ranges::for_each(directions, add);
  return all;
}

void FakeNetwork::set_timeout(Group& group, std::size_t member, std::chrono::milliseconds timeout) {
  const std::scoped_lock lock(mutex_);
  group.timeouts[member] = timeout;
}

std::string FakeNetwork::why_closed() {
  const std::scoped_lock lock(mutex_);
  return why_;
}

void FakeNetwork::abort(Group& group, std::size_t member) {
  const std::scoped_lock lock(mutex_);
  if (everyone_outlives_aborts && &group == &everyone_) return;
  group.aborted.insert(member);
  for (auto& calls : group.waiting) {
    for (const auto& call : std::exchange(calls, {})) end_wrongly(*call);
  }
  changed_.notify_all();
}

void FakeNetwork::issue(Group& group, std::size_t member, const std::shared_ptr<Call>& call) {
  std::unique_lock lock(mutex_);
  if (group.aborted.contains(member)) throw c10::DistBackendError({}, "the communicator is aborted");
  if (!group.aborted.empty()) return end_wrongly(*call);
  call->stream = current_fake_stream();
  if (is_transfer(*call)) ++pending_transfers_[call->stream];
  group.waiting[member].push_back(call);
  std::set<std::size_t>& connecting = group.connecting[way_of(*call)];
  connecting.insert(member);
  if (std::ranges::none_of(group.waiting, [](const auto& calls) { return calls.empty(); })) {
    std::vector<std::shared_ptr<Call>> met;
    for (auto& calls : group.waiting) {
      met.push_back(calls.front());
      calls.pop_front();
    }
    if (&group != &everyone_) sent_bytes_[call->kind] += ring_bytes(*call, group.waiting.size());
    carry_out(met);
  }
  changed_.notify_all();
  wait_until(lock, [&] { return connecting.size() == group.waiting.size() || !group.aborted.empty(); });
}

void FakeNetwork::carry_out(const std::vector<std::shared_ptr<Call>>& calls) {
  const at::NoGradGuard no_graph;
  const FakeDevice::Unrecorded by_the_call;
  const Call& first = *calls.front();
  const bool transfer = is_transfer(first);
  const auto differs = [&](const auto& call) { return call->kind != first.kind; };
  if (transfer && calls.back()->kind == first.kind) {
    if (why_.empty()) why_ = first.kind == Kind::Send ? "both ends of a pair send" : "both ends of a pair receive";
    return;
  }
  if (std::ranges::any_of(calls, [&](const auto& call) { return call->recording != first.recording; })) {
    if (why_.empty()) why_ = "the members of a group use different recordings";
    return;
  }
  if (!transfer && std::ranges::any_of(calls, differs)) throw std::logic_error("members call different collectives");
  if (transfer) {
    const bool up = first.kind == Kind::Send;
    calls[up ? 1 : 0]->out.front().copy_(calls[up ? 0 : 1]->in);
  } else if (first.kind == Kind::AllReduce) {
    const at::Tensor sum = sum_of(calls);
    for (const auto& call : calls) call->out.front().copy_(sum);
  } else if (first.kind == Kind::Reduce) {
    const auto other_root = [&](const auto& call) { return call->root != first.root; };
    if (std::ranges::any_of(calls, other_root)) throw std::logic_error("members name different roots");
    const at::Tensor sum = sum_of(calls);
    for (const auto& call : calls) call->out.front().fill_(std::numeric_limits<double>::quiet_NaN());
    calls[static_cast<std::size_t>(first.root)]->out.front().copy_(sum);
  } else if (first.kind == Kind::ReduceScatter) {
    const std::vector<at::Tensor> sums = sum_of(calls).chunk(static_cast<std::int64_t>(calls.size()));
    for (std::size_t member = 0; member < calls.size(); ++member) {
      calls[member]->in.fill_(std::numeric_limits<double>::quiet_NaN());
      calls[member]->out.front().copy_(sums[member]);
    }
  } else if (first.kind == Kind::Broadcast) {
    const auto other_root = [&](const auto& call) { return call->root != first.root; };
    if (std::ranges::any_of(calls, other_root)) throw std::logic_error("members name different roots");
    const at::Tensor& sent = calls[static_cast<std::size_t>(first.root)]->in;
    for (const auto& call : calls) call->out.front().copy_(sent);
  } else if (first.kind == Kind::AllGather) {
    for (const auto& call : calls) {
      for (std::size_t member = 0; member < calls.size(); ++member) call->out[member].copy_(calls[member]->in);
    }
  } else {
    for (std::size_t member = 0; member < calls.size(); ++member)
      calls[member]->out.front().copy_(exchanged(calls, member));
  }
  for (const auto& call : calls) call->done = true;
}

void FakeNetwork::wait_for(Call& call) {
  std::unique_lock lock(mutex_);
  wait_until(lock, [&] { return call.done; });
  if (is_transfer(call) && !std::exchange(call.awaited, true)) --pending_transfers_[call.stream];
}

void FakeNetwork::device_waits(c10::StreamId stream, const std::string& why) {
  const std::scoped_lock lock(mutex_);
  if (pending_transfers_[stream] == 0) return;
  if (why_.empty()) why_ = why + " waits for its device while a transfer is pending";
  changed_.notify_all();
}

void FakeNetwork::wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_done) {
  const auto own = waits_.insert(waits_.end(), is_done);
  const auto goes_on = [](const auto& wait) { return wait(); };
  if (std::ssize(waits_) == ranks_ && std::ranges::none_of(waits_, goes_on) && why_.empty()) {
    why_ = "all ranks wait for each other";
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return is_done() || !why_.empty(); });
  waits_.erase(own);
  if (!is_done()) throw c10::DistBackendError({}, why_);
}

}  // namespace chimera::testing

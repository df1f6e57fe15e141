#include "transport/threads/thread_transport.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "core/error.h"
#include "transport/groups.h"
#include "transport/threads/channel.h"
#include "transport/threads/closure.h"
#include "transport/threads/sum.h"

namespace chimera {

struct ThreadHub::State {
  State(int workers, StageGroups stage_groups)
      : num_workers(static_cast<std::size_t>(workers)),
        groups(std::move(stage_groups)),
        channels(num_workers * num_workers),
        everyone(num_workers) {
    for (const auto& group : groups) stages.emplace_back(group.size());
  }
  ThreadChannel& channel(WorkerId from, WorkerId to) { return channels[from.index() * num_workers + to.index()]; }

  std::size_t num_workers;
  StageGroups groups;
  Closure closure;
  std::vector<ThreadChannel> channels;  ///< [from][to]
  std::deque<ThreadSum> stages;         ///< by stage
  ThreadSum everyone;
};

namespace {

class Sent final : public Pending {
 public:
  Sent(const Closure& closure, WorkerId from, WorkerId to) : closure_(closure), from_(from), to_(to) {}
  at::Tensor wait() override {
    closure_.check([&] { return fmt::format("worker {}: send to worker {}", from_.value(), to_.value()); });
    return {};
  }

 private:
  const Closure& closure_;
  WorkerId from_;
  WorkerId to_;
};

class Receive final : public Pending {
 public:
  Receive(ThreadHub::State& hub, WorkerId from, WorkerId to, TensorSpec spec, const MessageTag& tag)
      : hub_(hub), from_(from), to_(to), spec_(std::move(spec)), tag_(tag), number_(hub.channel(from, to).post()) {}

  at::Tensor wait() override {
    const auto [message, tag] = hub_.channel(from_, to_).take(number_, hub_.closure);
    hub_.closure.check([&] { return operation(); });
    if (tag != tag_) throw_mismatch(from_, to_, tag_, to_text(tag));
    if (message.sizes() != spec_.sizes || message.scalar_type() != spec_.dtype) {
      throw TransportError(fmt::format("{}: expected [{}] {}, got [{}] {}; both ends must follow the same program",
                                       operation(), fmt::join(spec_.sizes, ", "), c10::toString(spec_.dtype),
                                       fmt::join(message.sizes(), ", "), c10::toString(message.scalar_type())));
    }
    return message;
  }

 private:
  [[nodiscard]] std::string operation() const {
    return fmt::format("worker {}: receive from worker {}", to_.value(), from_.value());
  }

  ThreadHub::State& hub_;
  WorkerId from_;
  WorkerId to_;
  TensorSpec spec_;
  MessageTag tag_;
  std::int64_t number_;
};

class Sum final : public Pending {
 public:
  /// `operation` names it in errors, e.g. "all-reduce of stage 2".
  Sum(ThreadHub::State& hub, ThreadSum& sum, WorkerId worker, std::size_t member, Addend addend, std::string operation)
      : hub_(hub),
        sum_(sum),
        worker_(worker),
        operation_(std::move(operation)),
        buffer_(addend.buffer),
        round_(sum.deposit(member, std::move(addend))) {}

  at::Tensor wait() override {
    const SumResult result = sum_.wait(round_, hub_.closure);
    const auto operation = [&] { return fmt::format("worker {}: {}", worker_.value(), operation_); };
    if (result.closed) hub_.closure.check(operation);
    if (!result.error.empty()) throw TransportError(operation() + ": " + result.error);
    return buffer_;
  }

 private:
  ThreadHub::State& hub_;
  ThreadSum& sum_;
  WorkerId worker_;
  std::string operation_;
  at::Tensor buffer_;
  std::int64_t round_;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(ThreadHub::State& hub, WorkerId worker) : hub_(hub), worker_(worker) {}

  std::unique_ptr<Pending> start_send(WorkerId to, at::Tensor tensor, const MessageTag& tag) override {
    hub_.channel(worker_, to).send({std::move(tensor), tag});
    return std::make_unique<Sent>(hub_.closure, worker_, to);
  }

  std::unique_ptr<Pending> post_receive(WorkerId from, const TensorSpec& spec, const MessageTag& tag) override {
    return std::make_unique<Receive>(hub_, from, worker_, spec, tag);
  }

  std::unique_ptr<Pending> start_all_reduce(StageId stage, at::Tensor gradients) override {
    return start_sum(stage, {.buffer = std::move(gradients)});
  }

  std::unique_ptr<Pending> start_ordered_all_reduce(StageId stage, at::Tensor gradients, std::vector<at::Tensor> parts,
                                                    const SumOrder& order) override {
    return start_sum(stage, {std::move(gradients), std::move(parts), &order});
  }

  std::unique_ptr<Pending> start_all_gather(StageId stage, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override {
    return start_sum(stage, {.buffer = std::move(buffer), .counts = counts}, "all-gather");
  }

  void all_sum(std::span<double> values) override {
    const auto view = at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kDouble);
    Sum(hub_, hub_.everyone, worker_, worker_.index(), {.buffer = view}, "all-sum").wait();
  }

 private:
  std::unique_ptr<Pending> start_sum(StageId stage, Addend addend, const char* name = "all-reduce") {
    const std::size_t member = place_in_group(hub_.groups, stage, worker_);
    addend.ready = StreamMark(addend.buffer.device());
    return std::make_unique<Sum>(hub_, hub_.stages[stage.index()], worker_, member, std::move(addend),
                                 fmt::format("{} of stage {}", name, stage.value()));
  }

  ThreadHub::State& hub_;
  WorkerId worker_;
};

}  // namespace

ThreadHub::ThreadHub(int workers, StageGroups groups) : state_(std::make_unique<State>(workers, std::move(groups))) {}

ThreadHub::~ThreadHub() = default;

std::unique_ptr<Transport> ThreadHub::transport(WorkerId worker) {
  return std::make_unique<ThreadTransport>(*state_, worker);
}

void ThreadHub::close(const std::string& why) {
  state_->closure.close(why);
  for (ThreadChannel& channel : state_->channels) channel.wake();
  for (ThreadSum& sum : state_->stages) sum.wake();
  state_->everyone.wake();
}

}  // namespace chimera

#include "generate/op_queues.h"

#include "generate/shape.h"

namespace chimera {
namespace {

void connect(std::vector<OpQueue>& queues, QueueIndex from, QueueIndex to) {
  // Both ends know each other: Evaluator waits for the input, list scheduling and Windows also follow the output.
  queues[static_cast<std::size_t>(to)].input = from;
  queues[static_cast<std::size_t>(from)].output = to;
}

}  // namespace

void add_queues(Instance& instance, const Placement& placement, const MicroBatches& micro_batches) {
  instance.chains.resize(static_cast<std::size_t>(instance.workers));
  for (std::size_t r = 0; r < placement.num_replicas(); ++r) {
    const auto count = instance.slices * static_cast<std::int32_t>(micro_batches[r].size());
    for (std::size_t s = 0; s < placement.worker_of[r].size(); ++s) {
      const auto chain = static_cast<std::int32_t>(instance.replica.size());
      const auto worker = static_cast<std::int32_t>(placement.worker_of[r][s].value());
      // A queue without ops (W, if backwards are whole) stays, so that indexes are regular.
      for (QueueIndex step = 0; step < kQueuesOfChain; ++step) {
        const std::int32_t ops = step == kWeightStep && !instance.split_backward ? 0 : count;
        instance.queues.push_back({.worker = worker,
                                   .count = ops,
                                   .first = instance.ops,
                                   .takes = step == kForwardStep,
                                   .releases = step == (instance.split_backward ? kWeightStep : kInputStep)});
        instance.ops += ops;
      }
      if (s > 0) {
        // Activations onward, gradients back.
        const QueueIndex here = kQueuesOfChain * chain;
        connect(instance.queues, here - kQueuesOfChain + kForwardStep, here + kForwardStep);
        connect(instance.queues, here + kInputStep, here - kQueuesOfChain + kInputStep);
      }
      instance.replica.push_back(static_cast<std::int32_t>(r));
      instance.stage.push_back(static_cast<std::int32_t>(s));
      instance.chains[static_cast<std::size_t>(worker)].push_back(chain);
    }
  }
}

OpKind kind_of(const Instance& instance, QueueIndex queue) {
  switch (queue % kQueuesOfChain) {
    case kForwardStep: return OpKind::Forward;
    case kInputStep: return instance.split_backward ? OpKind::BackwardInput : OpKind::Backward;
    default: return OpKind::BackwardWeight;
  }
}

Op op_of(const Instance& instance, const MicroBatches& micro_batches, QueueIndex queue, std::int32_t k) {
  const auto chain = static_cast<std::size_t>(queue / kQueuesOfChain);
  const ReplicaId replica(instance.replica[chain]);
  Op op = sliced_op(kind_of(instance, queue), replica, StageId(instance.stage[chain]), k, instance.slices);
  op.micro_batch = micro_batches[replica.index()].at(op.micro_batch.index());
  return op;
}

void append_ops(Schedule& schedule, const Instance& instance, const MicroBatches& micro_batches, const Orders& orders) {
  std::vector<std::int32_t> done(instance.queues.size(), 0);
  for (std::size_t w = 0; w < orders.size(); ++w) {
    schedule.workers[w].reserve(orders[w].size());
    for (const QueueIndex queue : orders[w])
      schedule.workers[w].push_back(op_of(instance, micro_batches, queue, done[static_cast<std::size_t>(queue)]++));
  }
}

}  // namespace chimera

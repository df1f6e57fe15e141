#include "contract.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <thread>

#include <array>
#include <stdexcept>

namespace chimera::contract {
namespace {

constexpr int kMessages = 8;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// Message number `index` of a channel: [2, 3], with elements that differ from those in all other messages.
at::Tensor message(RankId from, RankId to, int index, at::ScalarType dtype = at::kFloat) {
  const auto first = static_cast<double>(1000 * from.value() + 100 * to.value() + 10 * index);
  return (at::arange(6, at::kDouble) / 8 + first).to(dtype).reshape({2, 3});
}

TensorSpec spec(at::ScalarType dtype = at::kFloat) { return {.sizes = {2, 3}, .dtype = dtype}; }

void expect_message(Pending& receive, const at::Tensor& expected) {
  const at::Tensor arrived = receive.wait();
  expect(at::equal(arrived, expected), "a receive returned another message than the one sent in its turn");
}

RankId opposite(RankId me) { return RankId(kWorkers - 1 - me.value()); }

// Pairs (0, 3) and (1, 2), all messages in flight at once in both directions.
void keeps_order_in_both_directions(Transport& transport, RankId me) {
  const RankId peer = opposite(me);
  std::vector<std::unique_ptr<Pending>> sends;
  std::vector<std::unique_ptr<Pending>> receives;
  for (int i = 0; i < kMessages; ++i) {
    sends.push_back(transport.start_send(peer, message(me, peer, i), {}));
    receives.push_back(transport.post_receive(peer, spec(), {}));
  }
  for (int i = 0; i < kMessages; ++i) expect_message(*receives[i], message(peer, me, i));
  for (auto& send : sends) expect(!send->wait().defined(), "a send returned a tensor");
}

// The order of posting, not of waiting, decides which message a receive gets.
void waits_in_any_order(Transport& transport, RankId me) {
  const RankId peer = opposite(me);
  auto first = transport.post_receive(peer, spec(), {});
  auto second = transport.post_receive(peer, spec(), {});
  auto send_first = transport.start_send(peer, message(me, peer, 0), {});
  auto send_second = transport.start_send(peer, message(me, peer, 1), {});
  expect_message(*second, message(peer, me, 1));
  expect_message(*first, message(peer, me, 0));
  send_second->wait();
  send_first->wait();
}

// Worker 0 posts after worker 3 has sent, as worker 1 confirms; worker 3 posts before worker 0 can send.
void receives_posted_late_and_early(Transport& transport, RankId me) {
  const RankId zero(0), one(1), three(3);
  if (me == zero) {
    transport.post_receive(one, spec(), {})->wait();
    expect_message(*transport.post_receive(three, spec(), {}), message(three, zero, 0));
    transport.start_send(three, message(zero, three, 0), {})->wait();
  } else if (me == one) {
    transport.post_receive(three, spec(), {})->wait();
    transport.start_send(zero, message(one, zero, 0), {})->wait();
  } else if (me == three) {
    auto answer = transport.post_receive(zero, spec(), {});
    auto early = transport.start_send(zero, message(three, zero, 0), {});
    transport.start_send(one, message(three, one, 0), {})->wait();
    expect_message(*answer, message(zero, three, 0));
    early->wait();
  }
}

void carries_float64(Transport& transport, RankId me) {
  const RankId peer = opposite(me);
  auto receive = transport.post_receive(peer, spec(at::kDouble), {});
  auto send = transport.start_send(peer, message(me, peer, 0, at::kDouble) + 1e-12, {});
  expect_message(*receive, message(peer, me, 0, at::kDouble) + 1e-12);
  send->wait();
}

// A socket takes a megabyte only in pieces.
void carries_large_messages(Transport& transport, RankId me) {
  const RankId peer = opposite(me);
  const auto large = [](RankId from) { return at::arange(300'000, at::kFloat) + static_cast<float>(from.value()); };
  auto receive = transport.post_receive(peer, {.sizes = {300'000}, .dtype = at::kFloat}, {});
  auto send = transport.start_send(peer, large(me), {});
  expect_message(*receive, large(peer));
  send->wait();
}

/// Gradients of worker w: whole numbers, so that sums are exact in any order.
at::Tensor gradients(RankId worker, at::ScalarType dtype) {
  return at::arange(1000, dtype) * static_cast<double>(worker.value() + 1);
}

// Each stage is all-reduced over its own group while messages are in flight.
void sums_each_stage_over_its_group(Transport& transport, RankId me) {
  const RankId peer = opposite(me);
  const ParameterGroupId shared(me.value() % 3 == 0 ? 0 : 1);
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    at::Tensor buffer = gradients(me, dtype);
    auto all_reduce = transport.start_all_reduce(shared, buffer);
    auto receive = transport.post_receive(peer, spec(), {});
    auto send = transport.start_send(peer, message(me, peer, 0), {});
    expect_message(*receive, message(peer, me, 0));
    send->wait();
    const at::Tensor expected = gradients(me, dtype) + gradients(peer, dtype);
    expect(at::equal(all_reduce->wait(), expected), "an all-reduce returned another sum");
    expect(at::equal(buffer, expected), "an all-reduce was not in place");
  }
}

// Workers 0 and 1 start the two stages in the opposite order to 2 and 3, and wait in the order of starting.
void sums_stages_started_in_any_order(Transport& transport, RankId me) {
  std::vector<ParameterGroupId> order{ParameterGroupId(me.value() % 3 == 0 ? 0 : 1), ParameterGroupId(2)};
  if (me.value() >= 2) std::swap(order[0], order[1]);
  const at::Tensor pair = gradients(me, at::kFloat) + gradients(opposite(me), at::kFloat);
  const at::Tensor all = gradients(RankId(9), at::kFloat);  // 1 + 2 + 3 + 4 = 9 + 1
  std::vector<std::unique_ptr<Pending>> sums;
  for (const ParameterGroupId stage : order)
    sums.push_back(transport.start_all_reduce(stage, gradients(me, at::kFloat)));
  for (std::size_t i = 0; i < order.size(); ++i) {
    expect(at::equal(sums[i]->wait(), order[i] == ParameterGroupId(2) ? all : pair), "stages got mixed up");
  }
}

// Workers do not synchronize between the all-reduces of a stage: the first must match the first, the second the second.
void matches_successive_sums_in_order(Transport& transport, RankId me) {
  for (int i = 0; i < kMessages; ++i) {
    const auto sum = transport.start_all_reduce(ParameterGroupId(2), gradients(me, at::kFloat) * (i + 1));
    const at::Tensor expected = gradients(RankId(9), at::kFloat) * (i + 1);
    expect(at::equal(sum->wait(), expected), "successive all-reduces of a stage got mixed up");
  }
}

// Sizes grow and shrink, and workers come late to some of the sums.
void sums_inside_ops_one_after_the_other(Transport& transport, RankId me) {
  for (const std::int64_t size : {7, 40'000, 1, 200'000}) {
    for (int i = 0; i < kMessages; ++i) {
      if (i % kWorkers == me.value()) std::this_thread::yield();
      const at::Tensor values = at::arange(size, at::kFloat).remainder(1000) * static_cast<double>(me.value() + 1 + i);
      transport.sum_in_op(ParameterGroupId(2), values);
      const at::Tensor expected = at::arange(size, at::kFloat).remainder(1000) * (10.0 + kWorkers * i);
      expect(at::equal(values, expected), fmt::format("sum {} of {} numbers inside an op is wrong", i, size));
    }
  }
  at::Tensor alone = at::ones({3});
  if (me == RankId(0)) transport.sum_in_op(ParameterGroupId(3), alone);
  expect(at::equal(alone, at::ones({3})), "the sum of one worker is not its own");
}

void sums_a_stage_held_alone(Transport& transport, RankId me) {
  if (me != RankId(0)) return;
  at::Tensor buffer = gradients(me, at::kFloat);
  expect(at::equal(transport.start_all_reduce(ParameterGroupId(3), buffer)->wait(), gradients(me, at::kFloat)),
         "the sum over one worker is not its own");
}

// Values whose sum depends on the order: ((1e16 + 1) - 1e16) + 0.1 in doubles is 0.1.
void all_sum_adds_in_order_of_workers(Transport& transport, RankId me) {
  constexpr std::array<double, kWorkers> kTerms{1e16, 1.0, -1e16, 0.1};
  for (int repeat = 1; repeat <= 3; ++repeat) {
    std::array<double, 2> values{kTerms[me.index()], static_cast<double>(repeat)};
    transport.all_sum(values);
    expect(values[0] == 0.1, fmt::format("all_sum added in another order: {}", values[0]));
    expect(values[1] == 4.0 * repeat, "successive all_sums got mixed up");
  }
}

// The sums round, and every member must round alike: compares a hash of the bits over all workers.
void leaves_the_same_bits_everywhere(Transport& transport, RankId me) {
  const at::Tensor mine = at::sin(at::arange(10'000, at::kFloat) * static_cast<double>(me.value() + 1));
  const at::Tensor sum = transport.start_all_reduce(ParameterGroupId(2), mine.clone())->wait();
  const at::Tensor bits = sum.view(at::kInt).to(at::kLong);
  const auto hash = (bits * at::arange(1, 10'001, at::kLong)).sum().item<std::int64_t>() & ((1LL << 50) - 1);
  std::array<double, kWorkers> hashes{};
  hashes[me.index()] = static_cast<double>(hash);
  transport.all_sum(hashes);
  for (const double other : hashes) expect(other == hashes[0], "the members of a stage hold different sums");
}

// Eight blocks of a size that no number of workers divides, unevenly over four workers; one worker has none. Every
// worker gets the bits of a single tree, ((0+1)+(2+3))+((4+5)+(6+7)).
void sums_parts_in_the_order_of_the_tree(Transport& transport, RankId me) {
  constexpr std::int64_t kElements = 1003;
  const SumOrder order{{{{1, 0}, {0, 4}}, {{0, 2}, {1, 3}}, {}, {{0, 3}, {0, 5}}}};
  const auto block = [](std::int64_t b) {
    return at::sin(at::arange(kElements, at::kFloat) * static_cast<double>(b + 1));
  };
  const auto tree = [&](const Subtree& t) {
    return t.level == 0 ? block(t.index) : block(2 * t.index) + block(2 * t.index + 1);
  };
  const at::Tensor expected = (tree({1, 0}) + tree({1, 1})) + (tree({1, 2}) + tree({1, 3}));
  for (int repeat = 0; repeat < 2; ++repeat) {
    std::vector<at::Tensor> parts;
    for (const Subtree& part : order.parts[me.index()]) parts.push_back(tree(part));
    at::Tensor buffer = at::full({kElements}, 7, at::kFloat);
    expect(at::equal(
               transport.start_sum(ParameterGroupId(2), {.gradients = buffer, .parts = parts, .order = &order})->wait(),
               expected),
           "parts were added in another order");
    expect(at::equal(buffer, expected), "an ordered all-reduce left its sum elsewhere");
  }
  if (me != RankId(0)) return;
  const SumOrder alone{{{{0, 0}, {0, 1}}}};
  at::Tensor buffer = at::empty({kElements}, at::kFloat);
  transport.start_sum(ParameterGroupId(3), {.gradients = buffer, .parts = {block(0), block(1)}, .order = &alone})
      ->wait();
  expect(at::equal(buffer, block(0) + block(1)), "the ordered sum of one worker's parts is wrong");
}

/// The elements that each owns: parts of any size, even empty.
const std::vector<std::int64_t> kShards{3, 0, 900, 97};

at::Tensor own_shard(const at::Tensor& buffer, RankId me) {
  std::int64_t offset = 0;
  for (std::size_t member = 0; member < me.index(); ++member) offset += kShards[member];
  return buffer.narrow(0, offset, kShards[me.index()]);
}

// Two stages are in flight at once, beside messages; one in natural order, then one with parts in a tree's order.
void scatters_sums_to_their_owners(Transport& transport, RankId me) {
  const RankId peer = opposite(me);
  const ParameterGroupId pair(me.value() % 3 == 0 ? 0 : 1);
  const at::Tensor all = gradients(RankId(9), at::kDouble);  // 1 + 2 + 3 + 4 = 9 + 1
  for (int repeat = 0; repeat < 2; ++repeat) {
    at::Tensor buffer = gradients(me, at::kDouble);
    at::Tensor half = gradients(me, at::kFloat);
    auto of_pair = transport.start_sum(pair, {.gradients = half, .counts = {400, 600}});
    auto of_all = transport.start_sum(ParameterGroupId(2), {.gradients = buffer, .counts = kShards});
    auto receive = transport.post_receive(peer, spec(), {});
    auto send = transport.start_send(peer, message(me, peer, 0), {});
    expect_message(*receive, message(peer, me, 0));
    send->wait();
    const at::Tensor sum = gradients(me, at::kFloat) + gradients(peer, at::kFloat);
    const auto own_of_pair = [&](const at::Tensor& t) {
      return me < peer ? t.narrow(0, 0, 400) : t.narrow(0, 400, 600);
    };
    expect(at::equal(own_of_pair(of_pair->wait()), own_of_pair(sum)), "a reduce-scatter of a pair is wrong");
    expect(at::equal(own_shard(of_all->wait(), me), own_shard(all, me)), "a reduce-scatter returned another sum");
    expect(at::equal(own_shard(buffer, me), own_shard(all, me)), "a reduce-scatter was not in place");
  }
  const SumOrder order{{{{0, 3}}, {{0, 1}, {0, 2}}, {}, {{0, 0}}}};
  const auto block = [](std::int64_t b) { return at::sin(at::arange(1000, at::kFloat) * static_cast<double>(b + 1)); };
  std::vector<at::Tensor> parts;
  for (const Subtree& part : order.parts[me.index()]) parts.push_back(block(part.index));
  at::Tensor buffer = at::full({1000}, 7, at::kFloat);
  transport.start_sum(ParameterGroupId(2), {.gradients = buffer, .parts = parts, .order = &order, .counts = kShards})
      ->wait();
  const at::Tensor tree = (block(0) + block(1)) + (block(2) + block(3));
  expect(at::equal(own_shard(buffer, me), own_shard(tree, me)), "a reduce-scatter added parts in another order");
  if (me != RankId(0)) return;
  at::Tensor alone = at::ones({5});
  expect(
      at::equal(transport.start_sum(ParameterGroupId(3), {.gradients = alone, .counts = {5}})->wait(), at::ones({5})),
      "the reduce-scatter over one worker is not its own");
}

// Parts of any size, even empty. Two stages are in flight at once, started and awaited in the same order.
void hands_round_what_each_owns(Transport& transport, RankId me) {
  const std::vector<std::int64_t> counts{3, 0, 500, 40};
  const auto values = [](std::int64_t repeat) {
    return at::arange(600, at::kDouble) + 0.1 * static_cast<double>(repeat);
  };
  const ParameterGroupId pair(me.value() % 3 == 0 ? 0 : 1);
  for (int repeat = 0; repeat < 2; ++repeat) {
    std::int64_t offset = 0;
    for (std::size_t member = 0; member < me.index(); ++member) offset += counts[member];
    const std::int64_t own = counts[me.index()];
    at::Tensor buffer = at::full({600}, -1, at::kDouble);
    buffer.narrow(0, offset, own).copy_(values(repeat).narrow(0, offset, own));
    at::Tensor halves = at::full({2}, me.value(), at::kFloat);
    auto of_pair = transport.start_all_gather(pair, halves, {1, 1});
    auto of_all = transport.start_all_gather(ParameterGroupId(2), buffer, counts);
    const auto first = static_cast<double>(std::min(me, opposite(me)).value());
    const auto second = static_cast<double>(std::max(me, opposite(me)).value());
    expect(at::equal(of_pair->wait(), at::tensor({first, second}, at::kFloat)), "stages got mixed up");
    expect(at::equal(of_all->wait().narrow(0, 0, 543), values(repeat).narrow(0, 0, 543)), "an owner's part is missing");
    expect(buffer[543].item<double>() == -1, "an all-gather wrote behind the last part");
  }
  if (me != RankId(0)) return;
  at::Tensor alone = at::ones({5});
  expect(at::equal(transport.start_all_gather(ParameterGroupId(3), alone, {5})->wait(), at::ones({5})),
         "nobody to hand it to");
}

// Worker 0 returns at once: the end of its process, too, must not disturb the others.
void lets_workers_finish_early(Transport& transport, RankId me) {
  if (me == RankId(0)) return;
  const RankId next(me.value() % 3 + 1), previous((me.value() + 1) % 3 + 1);
  for (int i = 0; i < kMessages; ++i) {
    auto receive = transport.post_receive(previous, spec(), {});
    auto send = transport.start_send(next, message(me, next, i), {});
    expect_message(*receive, message(previous, me, i));
    send->wait();
  }
}

}  // namespace

RankGroups groups() {
  return {{RankId(0), RankId(3)}, {RankId(1), RankId(2)}, {RankId(0), RankId(1), RankId(2), RankId(3)}, {RankId(0)}};
}

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all{
      {"keeps_order_in_both_directions", keeps_order_in_both_directions},
      {"waits_in_any_order", waits_in_any_order},
      {"receives_posted_late_and_early", receives_posted_late_and_early},
      {"carries_float64", carries_float64},
      {"carries_large_messages", carries_large_messages},
      {"sums_each_stage_over_its_group", sums_each_stage_over_its_group},
      {"sums_stages_started_in_any_order", sums_stages_started_in_any_order},
      {"matches_successive_sums_in_order", matches_successive_sums_in_order},
      {"sums_inside_ops_one_after_the_other", sums_inside_ops_one_after_the_other},
      {"sums_a_stage_held_alone", sums_a_stage_held_alone},
      {"all_sum_adds_in_order_of_workers", all_sum_adds_in_order_of_workers},
      {"leaves_the_same_bits_everywhere", leaves_the_same_bits_everywhere},
      {"sums_parts_in_the_order_of_the_tree", sums_parts_in_the_order_of_the_tree},
      {"scatters_sums_to_their_owners", scatters_sums_to_their_owners},
      {"hands_round_what_each_owns", hands_round_what_each_owns},
      {"lets_workers_finish_early", lets_workers_finish_early},
  };
  return all;
}

}  // namespace chimera::contract

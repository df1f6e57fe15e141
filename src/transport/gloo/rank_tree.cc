#include "transport/gloo/rank_tree.h"

#include <ATen/Functions.h>
#include <algorithm>
#include <utility>

namespace chimera {
namespace {

constexpr int kLower = 0;  // ranks in a group of two
constexpr int kHigher = 1;
constexpr int kTag = 0;

}  // namespace

RankTree::RankTree(std::shared_ptr<ConnectionBreaker> breaker) : breaker_(std::move(breaker)) {}

void RankTree::complete(const Works& works, std::chrono::milliseconds timeout) const {
  for (const auto& work : works) wait_for(*work, timeout, breaker_.get());
}

void RankTree::connect(int rank, int world_size, const Connect& connect) {
  world_size_ = world_size;
  place_ = place_in_tree(rank, world_size);
  if (place_.parent >= 0) parent_ = connect(place_.parent);
  for (const RankRange& child : place_.children) children_.push_back(connect(child.first));
}

/// Returns the rows of this rank's subtree, and sends them to the parent.
at::Tensor RankTree::collect(const at::Tensor& mine, std::chrono::milliseconds timeout) const {
  std::vector<std::int64_t> sizes = mine.sizes().vec();
  sizes.insert(sizes.begin(), place_.subtree.end - place_.subtree.first);
  const at::Tensor rows = at::empty(sizes, mine.options());
  // The first rank of a subtree is this rank, and its children's subtrees follow in order of ranks.
  rows[0].copy_(mine);
  Works works;
  for (std::size_t child = 0; child < children_.size(); ++child) {
    const RankRange& ranks = place_.children[child];
    std::vector<at::Tensor> part{rows.narrow(0, ranks.first - place_.subtree.first, ranks.end - ranks.first)};
    works.push_back(children_[child]->recv(part, kHigher, kTag));
  }
  complete(works, timeout);
  if (parent_) {
    std::vector<at::Tensor> all{rows};
    complete({parent_->send(all, kLower, kTag)}, timeout);
  }
  return rows;
}

/// Sends `message` of rank 0 to all ranks; on others it receives it.
void RankTree::broadcast_sum(at::Tensor& message, std::chrono::milliseconds timeout) const {
  std::vector<at::Tensor> tensors{message};
  if (parent_) complete({parent_->recv(tensors, kLower, kTag)}, timeout);
  Works works;
  for (const GlooGroup& child : children_) works.push_back(child->send(tensors, kHigher, kTag));
  complete(works, timeout);
}

at::Tensor RankTree::gather(const at::Tensor& mine, std::chrono::milliseconds timeout) const {
  at::Tensor all = collect(mine, timeout);
  if (parent_) {
    std::vector<std::int64_t> sizes = mine.sizes().vec();
    sizes.insert(sizes.begin(), world_size_);
    all = at::empty(sizes, mine.options());
  }
  broadcast_sum(all, timeout);
  return all;
}

// Only rank 0 adds, in the order of ranks, and all take its sum: adding on the way up would be faster, but the bits
// would depend on the shape of the tree.
void RankTree::sum(std::span<double> values, std::chrono::milliseconds timeout) const {
  const auto count = static_cast<std::int64_t>(values.size());
  const at::Tensor mine = at::from_blob(values.data(), {count}, at::kDouble);
  const at::Tensor rows = collect(mine, timeout);
  at::Tensor sum = rows[0].clone();
  if (!parent_)
    for (std::int64_t rank = 1; rank < rows.size(0); ++rank) sum.add_(rows[rank]);
  broadcast_sum(sum, timeout);
  std::copy_n(sum.const_data_ptr<double>(), count, values.begin());
}

void RankTree::barrier(std::chrono::milliseconds timeout) const {
  double nothing = 0;
  sum({&nothing, 1}, timeout);
}

std::vector<GlooGroup> RankTree::take_groups() noexcept {
  std::vector<GlooGroup> taken = std::exchange(children_, {});
  if (parent_) taken.push_back(std::move(parent_));
  return taken;
}

}  // namespace chimera

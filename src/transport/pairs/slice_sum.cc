#include "transport/pairs/slice_sum.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "transport/ordered_sum.h"

namespace chimera {

SliceSum::SliceSum(c10::intrusive_ptr<c10d::Backend> group, at::Tensor gradients, const std::vector<at::Tensor>& parts,
                   const SumOrder& order, std::chrono::milliseconds timeout)
    : group_(std::move(group)),
      gradients_(std::move(gradients)),
      order_(order),
      timeout_(timeout),
      members_(group_->getSize()),
      slice_((gradients_.numel() + members_ - 1) / members_) {
  std::vector<std::int64_t> sent(static_cast<std::size_t>(members_), static_cast<std::int64_t>(parts.size()) * slice_);
  std::int64_t all_parts = 0;
  for (const auto& trees : order_.parts) {
    received_.push_back(static_cast<std::int64_t>(trees.size()) * slice_);
    all_parts += static_cast<std::int64_t>(trees.size());
  }
  outgoing_ = cut(parts);
  arrived_ = at::empty({all_parts * slice_}, gradients_.options());
  c10d::AllToAllOptions options;
  if (timeout_ != kNoTimeout) options.timeout = timeout_;
  auto received = received_;  // c10d takes the counts away
  exchange_ = group_->alltoall_base(arrived_, outgoing_, received, sent, options);
}

at::Tensor SliceSum::finish() {
  if (!exchange_->wait(timeout_)) throw TransportError("the exchange of gradients was aborted");
  gather(add_in_order(order_, arrived_slices()));
  return gradients_;
}

/// Elements that the member owns; the last ones may have less than a slice, or nothing.
std::int64_t SliceSum::slice_size(std::int64_t member) const {
  return std::clamp<std::int64_t>(gradients_.numel() - member * slice_, 0, slice_);
}

/// [member][part][slice], flat.
at::Tensor SliceSum::cut(const std::vector<at::Tensor>& parts) const {
  const auto own_parts = static_cast<std::int64_t>(parts.size());
  at::Tensor out = at::zeros({members_, own_parts, slice_}, gradients_.options());
  for (std::int64_t part = 0; part < own_parts; ++part) {
    for (std::int64_t member = 0; member < members_; ++member) {
      const std::int64_t size = slice_size(member);
      if (size == 0) continue;
      const at::Tensor from = parts[static_cast<std::size_t>(part)].narrow(0, member * slice_, size);
      out[member][part].narrow(0, 0, size).copy_(from);
    }
  }
  return out.flatten();
}

std::vector<std::vector<at::Tensor>> SliceSum::arrived_slices() const {
  std::vector<std::vector<at::Tensor>> slices;
  std::int64_t offset = 0;
  for (const std::int64_t size : received_) {
    auto& parts = slices.emplace_back();
    for (const std::int64_t end = offset + size; offset < end; offset += slice_) {
      parts.push_back(arrived_.narrow(0, offset, slice_));
    }
  }
  return slices;
}

void SliceSum::gather(const at::Tensor& own_sum) {
  std::vector<at::Tensor> mine{own_sum};
  std::vector<std::vector<at::Tensor>> all(1);
  for (std::int64_t member = 0; member < members_; ++member) all.front().push_back(at::empty_like(own_sum));
  c10d::AllgatherOptions options;
  if (timeout_ != kNoTimeout) options.timeout = timeout_;
  group_->allgather(all, mine, options)->wait();
  for (std::int64_t member = 0; member < members_; ++member) {
    const std::int64_t size = slice_size(member);
    if (size == 0) continue;
    gradients_.narrow(0, member * slice_, size).copy_(all.front()[static_cast<std::size_t>(member)].narrow(0, 0, size));
  }
}

}  // namespace chimera

#include "transport/transport.h"

#include <ATen/ATen.h>

#include <utility>

namespace chimera {

std::unique_ptr<Pending> Transport::start_reduce_scatter(ParameterGroupId group, at::Tensor gradients,
                                                         std::vector<at::Tensor> parts, const SumOrder* order,
                                                         const std::vector<std::int64_t>& /*counts*/) {
  if (order == nullptr) return start_all_reduce(group, std::move(gradients));
  return start_ordered_all_reduce(group, std::move(gradients), std::move(parts), *order);
}

std::vector<double> Transport::sum_to_host(const at::Tensor& values, const std::function<void()>& before_wait) {
  if (before_wait) before_wait();
  const at::Tensor own = values.cpu();
  std::vector<double> sums(own.const_data_ptr<double>(), own.const_data_ptr<double>() + own.numel());
  all_sum(std::span(sums));
  return sums;
}

}  // namespace chimera

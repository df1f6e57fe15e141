#include "transport/transport.h"

#include <ATen/ATen.h>

namespace chimera {

std::vector<double> Transport::sum_to_host(const at::Tensor& values, const std::function<void()>& before_wait) {
  if (before_wait) before_wait();
  const at::Tensor own = values.cpu();
  std::vector<double> sums(own.const_data_ptr<double>(), own.const_data_ptr<double>() + own.numel());
  all_sum(std::span(sums));
  return sums;
}

}  // namespace chimera

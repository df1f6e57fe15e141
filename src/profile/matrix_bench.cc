#include "profile/matrix_bench.h"

#include <ATen/ATen.h>

#include <vector>

#include "bench/statistics.h"
#include "train/setup/precision.h"

namespace chimera {
namespace {

constexpr std::int64_t kWidth = 1024;

double seconds_of_product(const at::Tensor& one, at::Tensor& product, std::int64_t threads) {
  const Stopwatch watch;
  at::mm_out(product, one, one);
  return seconds_of(watch.elapsed(), threads);
}

double measure_type(Lockstep& ranks, at::ScalarType type, std::int64_t threads, double seconds) {
  const at::NoGradGuard no_grad;
  const at::Tensor one = at::ones({kWidth, kWidth}, type);
  at::Tensor product = at::empty_like(one);
  std::vector<double> times;
  const double deadline = monotonic_seconds() + seconds;
  for (std::int64_t round = 0; ranks.go_on(round, deadline); ++round) {
    if (ranks.computes()) times.push_back(seconds_of_product(one, product, threads));
  }
  constexpr auto kFlops = 2.0 * kWidth * kWidth * kWidth;
  double speed = times.empty() ? 0 : kFlops / spread_of(times).low;
  ranks.average({&speed, 1});
  return speed;
}

}  // namespace

std::map<DataType, double> measure_matrix_flops(Lockstep& ranks, std::int64_t threads, double seconds) {
  std::map<DataType, double> flops;
  for (const DataType type : {DataType::Float32, DataType::Float64, DataType::BFloat16}) {
    if (type == DataType::BFloat16 && !has_native_bfloat16()) continue;
    flops[type] = measure_type(ranks, scalar_type(type), threads, seconds / 3);
  }
  return flops;
}

}  // namespace chimera

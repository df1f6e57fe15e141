#include "train/setup/precision.h"

#include <ATen/cpu/Utils.h>

#include <stdexcept>

#include "core/error.h"

namespace chimera {

at::ScalarType scalar_type(DataType type) {
  switch (type) {
    case DataType::Float32: return at::kFloat;
    case DataType::Float64: return at::kDouble;
    case DataType::BFloat16: return at::kBFloat16;
  }
  throw std::logic_error("a data type without a scalar type");
}

bool has_native_bfloat16() {
  const auto capabilities = at::cpu::get_cpu_capabilities();
  const auto has = [&](const char* name) {
    const auto found = capabilities.find(name);
    return found != capabilities.end() && found->second.toBool();
  };
  return has("avx512_bf16") || has("amx_bf16");
}

void require_fast_numbers(DataType dtype, bool native) {
  if (dtype != DataType::BFloat16 || native) return;
  throw ConfigError(
      "--dtype bfloat16: this CPU has neither AVX512-BF16 nor AMX and would be far slower than with float32; use "
      "--dtype float32, or --force-bfloat16 to try all the same");
}

}  // namespace chimera

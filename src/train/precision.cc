#include "train/precision.h"

#include <ATen/cpu/Utils.h>

#include "core/error.h"

namespace chimera {

at::ScalarType compute_type(const std::string& dtype) {
  if (dtype == "float64") return at::kDouble;
  return dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

bool has_native_bfloat16() {
  const auto capabilities = at::cpu::get_cpu_capabilities();
  const auto has = [&](const char* name) {
    const auto found = capabilities.find(name);
    return found != capabilities.end() && found->second.toBool();
  };
  return has("avx512_bf16") || has("amx_bf16");
}

void require_fast_numbers(const TrainOptions& options, bool native) {
  if (options.dtype != "bfloat16" || options.force_bfloat16 || native) return;
  throw ConfigError(
      "--dtype bfloat16: this CPU has neither AVX512-BF16 nor AMX and would be far slower than with float32; use "
      "--dtype float32, or --force-bfloat16 to try all the same");
}

}  // namespace chimera

#include "train/setup/gpu_peak.h"

#include <array>

namespace chimera {
namespace {

struct Peak {
  std::string_view begins;  // of the name
  double teraflops;
};

// What begins longer comes first.
constexpr std::array kPeaks = {
    Peak{"NVIDIA B200", 2250},
    Peak{"NVIDIA GH200", 989.4},
    Peak{"NVIDIA H200 NVL", 835},
    Peak{"NVIDIA H200", 989.4},
    Peak{"NVIDIA H100 NVL", 835},
    Peak{"NVIDIA H100 PCIe", 756},
    Peak{"NVIDIA H100 80GB HBM3", 989.4},
    Peak{"NVIDIA A100", 312},
    Peak{"NVIDIA A800", 312},
    Peak{"NVIDIA A40", 149.7},
    Peak{"NVIDIA A30", 165},
    Peak{"NVIDIA A10G", 70},
    Peak{"NVIDIA A10", 125},
    Peak{"NVIDIA L40S", 362},
    Peak{"NVIDIA L40", 181},
    Peak{"NVIDIA L4", 121},
};

}  // namespace

double bfloat16_peak(std::string_view name) {
  for (const Peak& peak : kPeaks) {
    if (name.starts_with(peak.begins)) return 1e12 * peak.teraflops;
  }
  return 0;
}

}  // namespace chimera

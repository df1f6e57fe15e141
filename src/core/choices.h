#pragma once
// What a run is asked to compute with, and where: the choices that planning, training, profiling and the command line
// have in common. Those that belong to one type of a higher floor stand beside it: AllReducePlacement, ReplicaLayout,
// ScaleMethod.

#include <cstdint>

#include "core/names.h"

namespace chimera {

/// Numbers that layers compute with: hidden states, their gradients, and the messages that carry them.
enum class DataType : std::uint8_t { Float32, Float64, BFloat16 };
template <>
inline constexpr auto kNames<DataType> = std::to_array<Named<DataType>>({{DataType::Float32, "float32"},
                                                                         {DataType::Float64, "float64"},
                                                                         {DataType::BFloat16, "bfloat16"}});

/// Bytes of one number of that type.
[[nodiscard]] constexpr std::int64_t bytes_of(DataType type) {
  switch (type) {
    case DataType::Float32: return 4;
    case DataType::Float64: return 8;
    case DataType::BFloat16: return 2;
  }
  return 0;
}

/// The type of master weights, of their gradients and of the optimizer's state: where layers compute with bfloat16
/// (mixed precision), float32.
[[nodiscard]] constexpr DataType master_type(DataType type) {
  return type == DataType::BFloat16 ? DataType::Float32 : type;
}

enum class OptimizerKind : std::uint8_t { AdamW, Sgd, Lamb };
template <>
inline constexpr auto kNames<OptimizerKind> = std::to_array<Named<OptimizerKind>>({{OptimizerKind::AdamW, "adamw"},
                                                                                   {OptimizerKind::Sgd, "sgd"},
                                                                                   {OptimizerKind::Lamb, "lamb"}});

/// Numbers that the optimizer remembers for each parameter, in the master weights' type: two moments, of SGD none.
[[nodiscard]] constexpr std::int64_t moments_of(OptimizerKind optimizer) {
  return optimizer == OptimizerKind::Sgd ? 0 : 2;
}

/// The order in which a step's gradients are added.
enum class ReductionOrder : std::uint8_t {
  Natural,    ///< the order in which the schedule accumulates them
  Canonical,  ///< one order for all schedules, depths and groups: deterministic in every bit
};
template <>
inline constexpr auto kNames<ReductionOrder> = std::to_array<Named<ReductionOrder>>(
    {{ReductionOrder::Natural, "natural"}, {ReductionOrder::Canonical, "canonical"}});

/// What ranks are, and so what connects them.
enum class TransportKind : std::uint8_t { Processes, Threads };
template <>
inline constexpr auto kNames<TransportKind> =
    std::to_array<Named<TransportKind>>({{TransportKind::Processes, "processes"}, {TransportKind::Threads, "threads"}});

/// Where tensors live.
enum class DeviceKind : std::uint8_t { Cpu, Cuda };
template <>
inline constexpr auto kNames<DeviceKind> = std::to_array<Named<DeviceKind>>({{DeviceKind::Cpu, "cpu"},
                                                                             {DeviceKind::Cuda, "cuda"}});

}  // namespace chimera

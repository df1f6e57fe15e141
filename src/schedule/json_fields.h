#pragma once
// The fields of a schedule in JSON, and what their values must be. The grammar stands in docs/schedule_format.md.

#include <array>
#include <cstdint>

namespace chimera {

/// Fields of the file, of a replica and of an op.
enum Field : std::uint8_t {
  kFormat,
  kVersion,
  kName,
  kStages,
  kMicroBatches,
  kScale,
  kSynchronous,
  kPerUpdate,
  kVersions,
  kDelay,
  kReplicas,
  kWorkers,
  kId,
  kHolders,
  kKind,
  kStage,
  kReplica,
  kMicroBatch,
  kWeightVersion,
  kPaired,
};

struct FieldText {
  const char* name;
  const char* expected;
};
inline constexpr std::array<FieldText, 20> kFields = {{
    {"format", "a string"},
    {"version", "an integer"},
    {"name", "a string"},
    {"stages", "an integer"},
    {"micro_batches", "an integer"},
    {"micro_batch_scale", "a number above 0 and up to 1"},
    {"synchronous", "true or false"},
    {"micro_batches_per_update", "an integer"},
    {"weight_versions", "an integer"},
    {"update_delay", "an integer"},
    {"replicas", "an array"},
    {"workers", "an array"},
    {"id", "an integer"},
    {"workers", "an array"},
    {"op", "a string"},
    {"stage", "an integer"},
    {"replica", "an integer"},
    {"micro_batch", "an integer"},
    {"weight_version", "an integer"},
    {"paired", "true or false"},
}};

/// The fields first .. last of an object; those in `optional` may be missing.
struct Fields {
  Field first;
  Field last;
  std::uint32_t optional;
};
constexpr std::uint32_t bit(Field field) { return std::uint32_t{1} << field; }
inline constexpr Fields kFileFields = {
    kFormat, kWorkers, bit(kScale) | bit(kSynchronous) | bit(kPerUpdate) | bit(kVersions) | bit(kDelay)};
inline constexpr Fields kHeaderFields = {kFormat, kReplicas, kFileFields.optional};
inline constexpr Fields kReplicaFields = {kId, kHolders, 0};
inline constexpr Fields kOpFields = {kKind, kPaired, bit(kWeightVersion) | bit(kPaired)};

}  // namespace chimera

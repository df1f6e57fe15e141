#include "check/check_versions.h"

#include <fmt/format.h>

#include <algorithm>

namespace chimera {
namespace {

/// A stage of a replica: the worker that holds it updates it by itself.
struct Copy {
  std::int32_t made = 0;      // updates so far: the newest version
  std::int64_t in_group = 0;  // weight gradients since
  std::int64_t kept = 1;      // versions
  std::size_t last_use = 0;   // where the last uses of its versions stand in last_use_
};

class VersionCheck {
 public:
  VersionCheck(const Schedule& schedule, Findings& findings)
      : schedule_(schedule),
        updates_(*schedule.updates),
        findings_(findings),
        copies_(schedule.placement.num_replicas() * static_cast<std::size_t>(schedule.stages)),
        group_of_(static_cast<std::size_t>(schedule.micro_batches)),
        forward_version_(static_cast<std::size_t>(schedule.stages * schedule.micro_batches)) {
    std::size_t uses = 0;
    const auto micro_batches = micro_batches_of_replicas(schedule);
    for (std::size_t r = 0; r < micro_batches.size(); ++r) {
      for (std::size_t rank = 0; rank < micro_batches[r].size(); ++rank) {
        group_of_[micro_batches[r][rank].index()] = static_cast<std::int64_t>(rank) / updates_.micro_batches;
      }
      num_updates_.push_back(static_cast<std::int64_t>(micro_batches[r].size()) / updates_.micro_batches);
      for (std::int64_t s = 0; s < schedule.stages; ++s) {
        copy(ReplicaId(static_cast<std::int64_t>(r)), StageId(s)).last_use = uses;
        uses += static_cast<std::size_t>(num_updates_.back()) + 1;
      }
    }
    last_use_.resize(uses);
  }

  void run() {
    for (std::size_t w = 0; w < schedule_.workers.size(); ++w) {
      const auto& ops = schedule_.workers[w];
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (can_exist(ops[i])) last_use(ops[i], ops[i].weight_version) = i;
      }
      for (std::size_t i = 0; i < ops.size(); ++i) check_op({w, i});
    }
  }

 private:
  Copy& copy(ReplicaId replica, StageId stage) {
    return copies_[replica.index() * static_cast<std::size_t>(schedule_.stages) + stage.index()];
  }

  bool can_exist(const Op& op) const {
    return op.weight_version >= 0 && op.weight_version <= num_updates_[op.replica.index()];
  }

  std::size_t& last_use(const Op& op, std::int32_t version) {
    return last_use_[copy(op.replica, op.stage).last_use + static_cast<std::size_t>(version)];
  }

  void check_op(Place place) {
    const Op& op = schedule_.workers[place.worker][place.position];
    Copy& held = copy(op.replica, op.stage);
    const std::int32_t version = op.weight_version;
    if (version < 0 || version > held.made) {
      findings_.add_at(schedule_, ViolationKind::MissingVersion, place,
                       "uses weight version {} of its stage, which has had {} updates", version, held.made);
    } else if (version < held.made && last_use(op, version) == place.position) {
      --held.kept;
    }
    std::int32_t& forward =
        forward_version_[op.stage.index() * static_cast<std::size_t>(schedule_.micro_batches) + op.micro_batch.index()];
    if (op.kind == OpKind::Forward) {
      forward = version;
      if (version != version_for(op, held)) {
        findings_.add_at(schedule_, ViolationKind::WrongVersion, place,
                         "uses weight version {}, not {} as the schedule's updates say", version,
                         version_for(op, held));
      }
    } else if (forward != version) {
      findings_.add_at(schedule_, ViolationKind::MixedVersions, place, "uses weight version {}, its forward used {}",
                       version, forward);
    }
    if (gives_weight_gradient(op.kind)) accumulate(op, place, held);
  }

  /// The version that a forward must use.
  std::int64_t version_for(const Op& forward, const Copy& held) const {
    if (!updates_.delay) return held.made;
    return std::max<std::int64_t>(0, group_of_[forward.micro_batch.index()] - *updates_.delay);
  }

  void accumulate(const Op& op, Place place, Copy& held) {
    const std::int64_t group = group_of_[op.micro_batch.index()];
    if (group != held.made) {
      findings_.add_at(schedule_, ViolationKind::UpdateOrder, place,
                       "belongs to update {} of its stage, but update {} is still to be made", group + 1,
                       held.made + 1);
    }
    if (++held.in_group < updates_.micro_batches) return;
    held.in_group = 0;
    const bool old_is_kept = last_use(op, held.made) > place.position;
    ++held.made;
    if (!old_is_kept) return;
    if (++held.kept <= updates_.versions) return;
    findings_.add_at(schedule_, ViolationKind::TooManyVersions, place,
                     "makes weight version {} of its stage while older ones are needed: {} kept, {} allowed", held.made,
                     held.kept, updates_.versions);
  }

  const Schedule& schedule_;
  const AsynchronousUpdates& updates_;
  Findings& findings_;
  std::vector<Copy> copies_;                   // [replica][stage]
  std::vector<std::int64_t> num_updates_;      // [replica], at each of its stages
  std::vector<std::size_t> last_use_;          // [replica][stage][version]: position of the last op that uses it
  std::vector<std::int64_t> group_of_;         // [micro-batch]: the updates of its replica that come before its own
  std::vector<std::int32_t> forward_version_;  // [stage][micro-batch]
};

}  // namespace

void check_versions(const Schedule& schedule, Findings& findings) {
  if (schedule.updates->micro_batches < 1 || schedule.updates->versions < 1) {
    findings.add(ViolationKind::OutOfRange, {}, [&] {
      return fmt::format("{} micro-batches an update and {} weight versions; both are positive",
                         schedule.updates->micro_batches, schedule.updates->versions);
    });
    return;
  }
  VersionCheck(schedule, findings).run();
}

}  // namespace chimera

#pragma once
// Profiles several hosts from here: each by itself, and the links between two of them.

#include <string>

#include "host_flags.h"
#include "plan/machine.h"
#include "profile/profiler.h"

namespace chimera::apps {

/// All hosts of --hosts measure themselves at the same time; then the first two measure their links over the network,
/// through `interface` unless it is empty. Returns all as one profile (merge_machines()), whose nodes have as many
/// workers as --hosts gives ranks to each, or else as their cores have room for. Says what it does on standard error.
/// Throws ConfigError for fewer than two hosts and for numbers of ranks that differ, and Error where one does not
/// measure, with its reason, or where a signal comes.
[[nodiscard]] MachineProfile profile_hosts(const HostFlags& flags, const ProfileOptions& options,
                                           const std::string& interface);

}  // namespace chimera::apps

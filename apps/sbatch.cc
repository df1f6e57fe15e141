#include "sbatch.h"

#include <fmt/format.h>

#include <sstream>

#include "core/error.h"
#include "own_command.h"

namespace chimera::apps {
namespace {

/// Each line of the text behind "# ".
std::string as_comment(const std::string& text) {
  std::string comment;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) comment += "# " + line + "\n";
  return comment;
}

}  // namespace

void require_whole_nodes(std::int64_t ranks, std::int64_t ranks_of_node) {
  if (ranks_of_node >= 1 && ranks % ranks_of_node == 0) return;
  throw ConfigError(
      fmt::format("--ranks-per-node {} does not divide the {} ranks; expected one that does", ranks_of_node, ranks));
}

std::string sbatch_script(const SlurmJob& job) {
  require_whole_nodes(job.ranks, job.ranks_of_node);
  return fmt::format(R"(#!/bin/bash
{comment}# sbatch THIS --data FILE --checkpoint FOLDER --resume auto   # further flags of `chimera train` come last
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks={ranks}
#SBATCH --ntasks-per-node={ranks_of_node}
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -u
# Ranks prove to each other that they are of this job.
CHIMERA_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export CHIMERA_SECRET
# The run saves, if it has --checkpoint, and ends with 75.
trap 'scancel --signal=USR1 "$SLURM_JOB_ID"' USR1
srun --kill-on-bad-exit=1 "${{CHIMERA:-chimera}}" train {flags} \
  "$@" &
steps=$!
while kill -0 "$steps" 2>/dev/null; do
  wait "$steps" # which a signal ends too
done
wait "$steps" # its exit code is kept
code=$?
if [ "$code" -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
)",
                     fmt::arg("comment", as_comment(job.comment)), fmt::arg("name", job.name),
                     fmt::arg("nodes", job.ranks / job.ranks_of_node), fmt::arg("ranks", job.ranks),
                     fmt::arg("ranks_of_node", job.ranks_of_node), fmt::arg("flags", shell_words(job.flags)));
}

}  // namespace chimera::apps

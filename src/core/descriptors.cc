#include "core/descriptors.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "core/error.h"

namespace chimera {

void require_descriptors(std::int64_t needed, const std::string& who, const std::string& remedy) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;  // then the system refuses what is too much
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= static_cast<rlim_t>(needed)) return;
  throw ConfigError(
      fmt::format("{} need {} open files in one process, but the limit is {}; raise it (ulimit -Hn), or {}", who,
                  needed, limit.rlim_cur, remedy));
}

}  // namespace chimera

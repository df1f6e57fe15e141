#include "train/recover/save_request.h"

#include <atomic>

namespace chimera {
namespace {

std::atomic<std::uint64_t> requests = 0;
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "signal handlers take no locks");

}  // namespace

void request_save() noexcept { ++requests; }

std::uint64_t save_requests() noexcept { return requests; }

}  // namespace chimera

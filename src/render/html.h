#pragma once
// An interactive HTML page with one or more schedules and their times (Panel in panel.h). The file contains the data
// (page_data.h) and the scripts of render/page, and refers to no other file or server.

#include <cstdint>
#include <string>
#include <vector>

#include "render/panel.h"

namespace chimera {

/// Maximum number of ops on a page: about 40 MB.
inline constexpr std::int64_t kMaxPageOps = 1'000'000;

/// Returns a self-contained HTML page: interactive panels on a common time axis, and a table of totals. Ops and
/// messages are embedded as typed arrays in base64, times as 32-bit floats, about 40 bytes per op. Throws ConfigError
/// if there is no panel, more than kMaxPageOps ops, or a makespan beyond a float's range.
[[nodiscard]] std::string to_html(const std::vector<Panel>& panels);

}  // namespace chimera

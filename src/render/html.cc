#include "render/html.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "core/reject.h"
#include "render/encoding.h"
#include "render/page/page.h"
#include "render/page_data.h"

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

/// Escapes `<`, as `</script>` or `<!--` would end or change a script element.
std::string embed(const Json& json) {
  std::string text;
  for (const char c : json_text(json)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

std::string page_title(const std::vector<Panel>& panels) {
  // A page of several panels is called by all of them.
  std::string title;
  for (const Panel& panel : panels) title += (title.empty() ? "" : ", ") + panel.title;
  return escape_markup(title);
}

// Titles are text of users: a field name in a title must stay as it is.
/// Fills the template in one pass, so that inserted text is not expanded again.
std::string fill_template(std::string_view text, const std::vector<std::pair<std::string_view, std::string>>& fields) {
  std::string result;
  while (!text.empty()) {
    std::size_t next = text.size();
    const std::pair<std::string_view, std::string>* field = nullptr;
    for (const auto& candidate : fields) {
      const std::size_t at = text.find(candidate.first);
      if (at < next) {
        next = at;
        field = &candidate;
      }
    }
    result += text.substr(0, next);
    if (field == nullptr) break;
    result += field->second;
    text.remove_prefix(next + field->first.size());
  }
  return result;
}

}  // namespace

std::string to_html(const std::vector<Panel>& panels) {
  if (panels.empty()) throw ConfigError("HTML page: no schedule is given");
  // The limit is for all panels of the page together.
  const auto ops = std::accumulate(panels.begin(), panels.end(), std::int64_t{0},
                                   [](std::int64_t sum, const Panel& panel) { return sum + num_ops(panel.schedule); });
  if (ops > kMaxPageOps) {
    reject(
        "HTML page: {} ops are more than the {} that a page holds; use fewer stages or micro-batches, or another "
        "format",
        ops, kMaxPageOps);
  }
  for (const Panel& panel : panels) {
    // The page has times as 32-bit floats.
    if (panel.timeline.makespan <= static_cast<double>(std::numeric_limits<float>::max())) continue;
    throw ConfigError("HTML page: the makespan is too large for a page; use a larger unit of time");
  }
  Json data = page_colors();
  data["panels"] = Json::array();
  for (const Panel& panel : panels) data["panels"].push_back(page_panel(panel));
  return fill_template(page::kTemplate, {{"@title@", page_title(panels)},
                                         {"@style@", std::string(page::kStyle)},
                                         {"@data@", embed(data)},
                                         {"@script@", std::string(page::kScript)}});
}

}  // namespace chimera

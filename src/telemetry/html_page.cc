#include "telemetry/html_page.h"

#include <fmt/format.h>

#include "render/chart.h"
#include "render/encoding.h"

namespace chimera {
namespace {

// One style for all pages, light and dark; a page needs no other file and can be sent by mail.
constexpr const char* kStyle = R"(:root{--paper:#f6f7f9;--card:#ffffff;--ink:#1b1f24;--soft:#57606a;--line:#d8dce0}
@media (prefers-color-scheme: dark){:root{--paper:#0e1116;--card:#171b20;--ink:#e6e9ec;--soft:#a3adb8;--line:#343b43}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,"DejaVu Sans",sans-serif}
main{max-width:1360px;margin:0 auto;padding:24px 20px 48px}
h1{font-size:24px;line-height:1.25;margin:0;overflow-wrap:anywhere}
h2{font-size:17px;margin:0 0 12px}
.subtitle{color:var(--soft);margin:4px 0 20px;overflow-wrap:anywhere}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;margin:0 0 16px}
section p{margin:0 0 10px;max-width:80ch}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:12px}
.pair>*{min-width:0;overflow-x:auto}
.scroll{overflow-x:auto}
.picture{overflow-x:auto;background:#fff;border-radius:6px}
.picture svg{display:block}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:14px 20px;margin:0}
.figures dt{color:var(--soft);font-size:13px}
.figures dd{margin:0;font-size:20px;font-weight:600;font-variant-numeric:tabular-nums}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:5px 14px 5px 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
thead th{color:var(--soft);font-weight:600}
th.number,td.number{text-align:right;white-space:nowrap}
tbody th{font-weight:500;white-space:nowrap}
td{overflow-wrap:anywhere}
@media (max-width:600px){main{padding:16px 10px 32px}section{padding:12px;border-radius:8px}h1{font-size:20px}
tbody th{white-space:normal}th,td{padding-right:8px}}
@media (max-width:520px){main .chart{min-width:0}main .chart text{font-size:15px}main .chart .title{font-size:18px}}
)";

}  // namespace

std::string html_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                       bool numbers) {
  const char* kind = numbers ? " class=\"number\"" : "";
  std::string text = "<div class=\"scroll\"><table><thead><tr>";
  for (std::size_t c = 0; c < head.size(); ++c)
    text += fmt::format("<th scope=\"col\"{}>{}</th>", c == 0 ? "" : kind, escape_markup(head[c]));
  text += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    text += fmt::format("<tr><th scope=\"row\">{}</th>", escape_markup(row.front()));
    for (std::size_t c = 1; c < row.size(); ++c) text += fmt::format("<td{}>{}</td>", kind, escape_markup(row[c]));
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

std::string side_by_side(const std::vector<std::string>& pictures) {
  std::string text = "<div class=\"pair\">\n";
  for (const std::string& picture : pictures) text += "<div>" + picture + "</div>\n";
  return text + "</div>\n";
}

std::string html_page(const std::string& title, const std::string& subtitle, const std::vector<Section>& sections) {
  std::string body;
  for (const Section& section : sections)
    body += fmt::format("<section><h2>{}</h2>\n{}</section>\n", escape_markup(section.heading), section.body);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{0}</title>\n<style>{1}{2}</style></head>\n"
      "<body><main><h1>{0}</h1><p class=\"subtitle\">{3}</p>\n{4}</main></body></html>\n",
      escape_markup(title), kStyle, chart_style(), escape_markup(subtitle), body);
}

}  // namespace chimera

#pragma once
// Sources of the HTML page, embedded at build time.

#include <string_view>

namespace chimera::page {

extern const std::string_view kTemplate;  ///< Page.html, with @title@, @style@, @data@ and @script@
extern const std::string_view kStyle;     ///< Plot.css and page.css
extern const std::string_view kScript;    ///< Data.js, draw.js, view.js, picture.js, totals.js, plot.js, page.js

}  // namespace chimera::page

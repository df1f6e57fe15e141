#pragma once
// Sources of the interactive HTML page that html.h makes of a schedule. The files of this folder are embedded into the
// program at build time.

#include <string_view>

namespace chimera::page {

extern const std::string_view kTemplate;  ///< page.html, with the placeholders @title@, @style@, @data@ and @script@
extern const std::string_view kStyle;     ///< plot.css and page.css
extern const std::string_view kScript;    ///< data.js, draw.js, view.js, picture.js, totals.js, plot.js, page.js

}  // namespace chimera::page

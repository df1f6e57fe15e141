// The playground's one function as a page or Node calls it. Strings are UTF-8 that ends with a zero byte.

#include <string>

#include "answers/playground.h"

extern "C" {

/// Given by the page (apps/web/engine_library.js): passes on what a long request reports.
void chimera_report(const char* progress);

/// The answer stays until the next call.
const char* chimera_answer(const char* request) {
  static std::string text;
  text = chimera::playground::answer(request, [](const std::string& progress) { chimera_report(progress.c_str()); });
  return text.c_str();
}

}  // extern "C"

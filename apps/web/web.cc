// Strings are UTF-8 and zero-terminated.

#include "answers/playground.h"

extern "C" {

/// The page provides it (apps/web/engine_library.js).
void chimera_report(const char* progress);

/// Returns the answer, valid until the next call.
const char* chimera_answer(const char* request) {
  static std::string text;
  text = chimera::playground::answer(request, [](const std::string& progress) { chimera_report(progress.c_str()); });
  return text.c_str();
}

}  // extern "C"

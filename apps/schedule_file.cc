#include "schedule_file.h"

#include <iostream>

#include "options.h"
#include "schedule/schedule_csv.h"

namespace chimera::apps {
namespace {

Schedule read(std::istream& in, const std::string& path) {
  TextSource text(in, path);
  ReadSchedule result = schedule_from_text(text);
  for (const std::string& note : result.notes) std::cerr << "chimera: note: " << note << '\n';
  return std::move(result.schedule);
}

}  // namespace

Schedule load_schedule(const std::string& path) {
  if (path == "-") return read(std::cin, path);
  std::ifstream file = open_input(path);
  return read(file, path);
}

}  // namespace chimera::apps

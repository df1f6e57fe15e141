#include "flags/flag_door.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/files.h"
#include "flags/values.h"
#include "help.h"

namespace chimera::apps {

void FlagDoor::group(const char* heading) { begin_group(app_, heading); }

void FlagDoor::text(const Field& field, const Take& take) {
  const std::string flag = field.flag_name();
  if (field.meaning.empty()) return;
  if (field.type.empty()) {
    app_.add_flag_callback(
        flag, [take] { take("true"); }, field.meaning);
  } else if (field.entries == 1) {
    add_text(app_, flag, take, field.type, field.meaning);
  } else {
    const auto join = [take](const std::vector<std::string>& words) { take(fmt::format("{}", fmt::join(words, ","))); };
    auto* const option = app_.add_option_function<std::vector<std::string>>(flag, join, field.meaning);
    option->type_name(field.type);
    if (field.entries > 1) {
      option->expected(field.entries);
    } else {
      // One word for each time the flag is given; a word after it is an argument of the command.
      option->take_all()->allow_extra_args(false);
    }
  }
}

void FlagDoor::document(const Field& field, Document& document) {
  const auto read = [&document](const std::string& path) { document = {path, read_whole(path)}; };
  add_text(app_, field.flag_name(), read, "FILE", field.meaning);
}

}  // namespace chimera::apps

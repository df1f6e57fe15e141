#include "partition_flag.h"

namespace chimera::apps {

void add_partition(CLI::App& app, PartitionChoice& partition) {
  app.add_option_function<std::string>(
         "--partition", [&partition](const std::string& text) { partition = parse_partition(text); },
         "layers of the stages: even; balanced, so that by FLOPs no worker, with all stages it holds, is slower "
         "than it must be; or the number on each, as in 8,9,9,6 (default even)")
      ->type_name("CUT");
}

}  // namespace chimera::apps

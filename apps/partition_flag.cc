#include "partition_flag.h"

namespace chimera::apps {

void add_partition(CLI::App& app, PartitionChoice& partition) {
  app.add_option_function<std::string>(
         "--partition", [&partition](const std::string& text) { partition = parse_partition(text); },
         "how layers are dealt out to stages: even; balanced, so that the slowest worker, with all stages that it "
         "holds, is as fast as can be by FLOPs; or the number of blocks on each stage, as in 8,9,9,6 (default even)")
      ->type_name("CUT");
}

}  // namespace chimera::apps

#include "support/paths.h"

namespace chimera::testing {

std::string source_path(const std::string& below) { return CHIMERA_SOURCE_DIR + below; }

}  // namespace chimera::testing

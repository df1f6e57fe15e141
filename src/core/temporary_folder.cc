#include "core/temporary_folder.h"

#include <stdlib.h>

#include <system_error>

#include "core/error.h"

namespace chimera {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "chimera-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw Error("cannot make a folder " + pattern);
  folder_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace chimera

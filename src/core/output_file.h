#pragma once
// Files that appear whole or not at all.

#include <string>

namespace chimera {

/// Writes a new file beside its place (`path`.unfinished, or a name with a number where that is taken) and moves it
/// there: whatever happens, `path` has its old content or all of the new.
/// What is no regular file (/dev/null, a pipe) is written to, never replaced. Throws ConfigError where it cannot be
/// written.
void write_whole(const std::string& path, const std::string& text);

/// Throws ConfigError where write_whole could not write now. Leaves `path` and all files beside it as they are.
void require_writable_whole(const std::string& path);

}  // namespace chimera

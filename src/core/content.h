#pragma once
// Recognizes files of the wrong kind by their first bytes, such as an archive or an unfetched Git LFS pointer given as
// a text. Readers call these functions before they parse, so that the message says what the file is and how to get the
// right one.

#include <cstddef>
#include <string>
#include <string_view>

namespace chimera {

/// Number of first bytes that the functions below take, at most.
inline constexpr std::size_t kContentHead = 4096;

/// Throws ConfigError if a file that begins with the bytes `head` is of a known kind other than text: an archive, a
/// table, a Git LFS pointer and so on. The message has the command that makes the right file of it. `path` is for the
/// message; "-" is standard input.
void require_no_foreign_content(const std::string& path, std::string_view head);
/// Same, but also throws ConfigError for a web page. For files that users download, where a failed download often
/// leaves an HTML page.
void require_downloaded_content(const std::string& path, std::string_view head);
/// Same as require_no_foreign_content(), but also throws ConfigError for UTF-16, UTF-32, other binary files and, unless
/// the name ends in .txt, JSON. `lines_remedy` is the advice for a file with a JSON object per line, where FILE stands
/// for the path; if it is empty, JSON is accepted.
void require_text_content(const std::string& path, std::string_view head, const std::string& lines_remedy);

}  // namespace chimera

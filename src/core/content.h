#pragma once
// Recognizes files of the wrong kind by their first bytes, such as an archive or an unfetched Git LFS pointer given as
// a text. Readers call these functions before they parse, so that the message says what the file is and how to get the
// right one.

#include <cstddef>
#include <string>
#include <string_view>

namespace chimera {

/// Number of first bytes that the functions below need. `head` may be longer.
inline constexpr std::size_t kContentHead = 4096;

/// Throws ConfigError if a file that begins with the bytes `head` is of a known kind other than text. For a Git LFS
/// pointer, a gzip archive and an array of NumPy, the message has the command that turns it into the right file, such
/// as `gunzip`; other archives, tables, documents, models and programs have one message. `path` is for the message; "-"
/// is standard input.
void require_no_foreign_content(const std::string& path, std::string_view head);
/// Does the same, and also throws ConfigError for a web page. It is for files that users download, because a failed
/// download often leaves an HTML page.
void require_downloaded_content(const std::string& path, std::string_view head);
/// Throws ConfigError if a file that begins with the bytes `head` is of one of these kinds, tested in this order. Text
/// in another 8-bit encoding, such as Latin-1, passes. Only the first kContentHead bytes count for the last two:
///  - the kinds of require_no_foreign_content(), and safetensors files;
///  - UTF-16 and binary files;
///  - HTML, XML and JSON, but not if the name ends in .txt or `lines_remedy` is empty: such a file may contain them.
/// If the first line is a JSON object (JSONL), the message ends with the advice `lines_remedy`, in which FILE stands
/// for the path. For other JSON, the message has a command that converts it to JSONL.
void require_text_content(const std::string& path, std::string_view head, const std::string& lines_remedy);

}  // namespace chimera

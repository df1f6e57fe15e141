// Man pages, and pages of the book.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference.h"

namespace chimera::apps {
namespace {

/// Text for man(7): no line begins with a control character, and dashes are those of a keyboard.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

std::string flag_names(const FlagEntry& flag) { return fmt::format("{}", fmt::join(flag.names, ", ")); }

std::string man_flags(const CommandEntry& command) {
  std::string text;
  for (const FlagGroup& group : command.groups) {
    text += fmt::format(".SS {}\n", roff(group.heading));
    for (const FlagEntry& flag : group.flags) {
      text += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(flag_names(flag)),
                          flag.takes.empty() ? "" : " \\fI" + roff(flag.takes) + "\\fR",
                          flag.description.empty() ? "\\&" : roff(flag.description));
    }
  }
  return text;
}

std::string dashed(std::string name) {
  for (char& c : name) {
    if (c == ' ') c = '-';
  }
  return name;
}

/// A cell of a Markdown table, which a bar would end.
std::string table_cell(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

/// What --help says below its flags; the heading one level below `level`.
std::string markdown_body(const CommandEntry& command) {
  std::string text = fmt::format("{}.\n\n```\n{}\n```\n\n", command.description, command.usage);
  for (const std::string& paragraph : command.paragraphs) text += paragraph + "\n\n";
  if (!command.examples.empty()) text += fmt::format("```\n{}\n```\n\n", fmt::join(command.examples, "\n"));
  for (const FlagGroup& group : command.groups) {
    text += fmt::format("**{}**\n\n| flag | what |\n| --- | --- |\n", group.heading);
    for (const FlagEntry& flag : group.flags) {
      const std::string takes = flag.takes.empty() ? "" : " " + flag.takes;
      text += fmt::format("| `{}`{} | {} |\n", flag_names(flag), table_cell(takes), table_cell(flag.description));
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string to_man_page(const CommandEntry& command, const std::string& version) {
  const std::string name = dashed(command.name);
  std::string text = fmt::format(".TH {} 1 \"\" \"chimera {}\" \"User Commands\"\n", roff(name), version);
  text += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(command.description));
  text += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR\n", roff(command.usage));
  text += ".SH DESCRIPTION\n";
  if (command.paragraphs.empty()) text += roff(command.description) + ".\n";
  for (const std::string& paragraph : command.paragraphs) text += ".PP\n" + roff(paragraph) + "\n";
  if (!command.subcommands.empty()) text += ".SH SUBCOMMANDS\n";
  for (const CommandEntry& inner : command.subcommands) {
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(inner.last_name()), roff(inner.description));
  }
  if (!command.groups.empty()) text += ".SH OPTIONS\n" + man_flags(command);
  if (!command.examples.empty()) {
    text += ".SH EXAMPLES\n.nf\n";
    for (const std::string& example : command.examples) text += roff(example) + "\n";
    text += ".fi\n";
  }
  return text +
         ".SH SEE ALSO\n\\fBchimera\\fR(1); each subcommand has a page, \\fBchimera\\-train\\fR(1) for example.\n";
}

std::string to_markdown(const CommandEntry& command) {
  std::string text = fmt::format("# {}\n\n{}", command.name, markdown_body(command));
  for (const CommandEntry& inner : command.subcommands) {
    text += fmt::format("## {}\n\n{}", inner.name, markdown_body(inner));
  }
  return text;
}

}  // namespace chimera::apps

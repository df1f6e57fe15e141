#include "data/tokenize.h"
#include "flags/outputs.h"
#include "flags/values.h"

#include <iostream>

#include "commands.h"
#include "core/cgroup.h"
#include "core/console.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/reject.h"
#include "help.h"
#include "progress_line.h"

namespace chimera::apps {
namespace {

constexpr double kMega = 1e6;
constexpr std::int64_t kMaxWorkers = 1024;

struct TokenizeFlags {
  TokenizeOptions options;
  CLI::Option* field = nullptr;
  CLI::Option* output_format = nullptr;
  CLI::Option* save_every_option = nullptr;
  std::int64_t workers = 0;  // 0: number of cores
  std::int64_t save_every = 256;
  Format format = Format::Text;
};

double rate(double amount, const TokenizeProgress& report) { return amount / std::max(report.seconds, 1e-9); }

std::string progress(const TokenizeProgress& report) {
  const double done = static_cast<double>(report.bytes);
  // What an earlier, interrupted run has done counts as done, but not for the speed.
  const double left = static_cast<double>(report.total_bytes - report.resumed) - done;
  std::string line = fmt::format("{:.1f} MB", (done + static_cast<double>(report.resumed)) / kMega);
  if (report.total_bytes > 0)
    line += fmt::format(" of {:.1f} | {:.0f} s left", static_cast<double>(report.total_bytes) / kMega,
                        left / std::max(rate(done, report), 1.0));
  return line + fmt::format(" | {:.1f} MB/s | {:.0f} documents/s", rate(done, report) / kMega,
                            rate(static_cast<double>(report.documents), report));
}

std::string summary(const TokenizeProgress& report) {
  const auto bytes = static_cast<double>(report.bytes);
  std::string text =
      fmt::format("{}, {}; {:.1f} MB in {:.2f} s: {:.1f} MB/s, {:.0f} documents/s\n",
                  counted(report.documents, "document"), counted(report.tokens, "token"), bytes / kMega, report.seconds,
                  rate(bytes, report) / kMega, rate(static_cast<double>(report.documents), report));
  if (report.skipped > 0) text += fmt::format("{} left out\n", counted(report.skipped, "empty document"));
  if (report.resumed > 0)
    text += fmt::format("an earlier run had done {:.1f} MB\n", static_cast<double>(report.resumed) / kMega);
  for (const std::string& file : report.files) text += fmt::format("wrote {}\n", file);
  return text;
}

std::string summary_json(const TokenizeProgress& report) {
  const auto bytes = static_cast<double>(report.bytes);
  const nlohmann::ordered_json json = {{"documents", report.documents},
                                       {"tokens", report.tokens},
                                       {"empty_documents_skipped", report.skipped},
                                       {"bytes", report.bytes},
                                       {"resumed_bytes", report.resumed},
                                       {"seconds", report.seconds},
                                       {"megabytes_per_second", rate(bytes, report) / kMega},
                                       {"documents_per_second", rate(static_cast<double>(report.documents), report)},
                                       {"files", report.files}};
  return json_report(json);
}

void run(TokenizeFlags& flags) {
  TokenizeOptions& options = flags.options;
  // Ids on standard output leave no room for a report or for resuming.
  const bool prints = options.output == "-";
  require_between("--workers", flags.workers, 0, kMaxWorkers);
  require_between("--save-every", flags.save_every, 1, 1'000'000);
  if (prints && flags.format != Format::Text) reject("--format json needs standard output, as --output - does");
  if (prints && flags.output_format->count() > 0)
    reject("--output - prints ids as text; leave out --output-format, or name a file");
  if (prints && flags.save_every_option->count() > 0)
    reject("--save-every: --output - saves no progress; leave it out, or name a file");
  if (prints && options.overwrite) reject("--overwrite: --output - writes no file; leave it out");
  options.inputs.all_jsonl = flags.field->count() > 0;
  options.workers = flags.workers == 0 ? available_cores() : static_cast<int>(flags.workers);
  // MiB to bytes.
  options.save_every = flags.save_every << 20;
  options.print = [](const std::string& text) {
    std::cout << text;
    if (!std::cout) throw Error("standard output cannot be written");
  };
  warn_about_surplus_threads("--workers", flags.workers, 1);
  ProgressLine line;
  const TokenizeProgress report =
      tokenize(options, [&](const TokenizeProgress& now) { line.show([&] { return progress(now); }); });
  // The summary goes to standard error, unless it is the only output.
  line.clear();
  if (flags.format == Format::Json)
    write_output("", summary_json(report));
  else if (!prints)
    messages().write(summary(report));
  std::cout << std::flush;
  finish_output(kDrainAfterSuccess);
}

}  // namespace

void add_tokenize(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand("tokenize", "Convert text files to files of token ids");
  command->footer(
      "Examples:\n"
      "  chimera tokenize book.txt --tokenizer tokenizer.json --output book\n"
      "  chimera tokenize *.jsonl --field text --tokenizer llama/ --output-format llmc --output corpus --workers 8\n"
      "  zcat text.gz | chimera tokenize - --tokenizer gpt2/ --output-format raw --output train\n"
      "  echo 'Hello world' | chimera tokenize - --tokenizer tokenizer.json --output -\n"
      "\nA text file is one document; a JSONL file has one document per line. Documents keep their order. An "
      "interrupted conversion continues at PREFIX.resume when the command runs again.\n"
      "\nMore: docs/tokenizers.md, docs/data.md");
  auto flags = std::make_shared<TokenizeFlags>();
  TokenizeOptions& options = flags->options;
  options.inputs.field = "text";
  command->add_option("FILE", options.inputs.paths, "UTF-8 text or JSONL; - reads standard input")->required();
  begin_group(*command, heading::kData);
  add_path(*command, "--tokenizer", options.tokenizer,
           "tokenizer.json, vocab.json or vocab.txt, a folder with one of them, or `bytes`")
      ->required();
  flags->field = add_string(*command, "--field", options.inputs.field, "NAME",
                            "JSON field with the text; treats every FILE as JSONL (default text)");
  add_string(*command, "--end-of-document", options.end_of_document, "TOKEN",
             "token at the end of each document, or none (default: the token of the tokenizer; none with --output -)");
  add_choice(*command, "--invalid", options.invalid,
             "what to do with invalid UTF-8: an error, or replacement by U+FFFD (default refuse)");
  add_choice(*command, "--empty", options.empty,
             "what to do with documents without tokens: an error, omission, or keeping them (default refuse)");
  begin_group(*command, heading::kRunning);
  add_count(*command, "--workers", flags->workers, "number of tokenizing threads (default: one per core)");
  flags->save_every_option = add_count(*command, "--save-every", flags->save_every,
                                       "MiB of input between resume points of an interrupted conversion (default 256)");
  begin_group(*command, heading::kOutput);
  add_path(*command, "--output", options.output,
           "prefix of PREFIX.bin and (for megatron) PREFIX.idx; - prints ids, one document per line")
      ->required();
  command->add_flag("--overwrite", options.overwrite, "replace files that exist");
  flags->output_format =
      add_choice(*command, "--output-format", options.format, "format of the files (default megatron)");
  add_format(*command, flags->format, {Format::Text, Format::Json});
  command->callback([flags] { run(*flags); });
}

}  // namespace chimera::apps

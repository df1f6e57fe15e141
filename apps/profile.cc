// Ways to a profile. Without flags, this process is a launcher that starts ranks, which measure together, as they would
// train (measure_as_rank()). With --hosts, it starts `chimera profile` on each host, and then `chimera launch --
// profile --links` on two of them. With --between, it is itself one of these two ranks (measure_between()).

#include <ATen/Parallel.h>
#include <fmt/ranges.h>
#include <iostream>

#include "bench/machine_line.h"
#include "commands.h"
#include "core/cgroup.h"
#include "core/console.h"
#include "core/counted.h"
#include "core/files.h"
#include "core/host_name.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "core/resident_memory.h"
#include "flags/hosts.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "launch/hosts/hosts.h"
#include "launch/local/launcher.h"
#include "launch/local/run_commands.h"
#include "model_config/config.h"
#include "plan/cluster_profile.h"
#include "plan/machine.h"
#include "profile/gpu_check.h"
#include "profile/measure_links.h"
#include "profile/profiler.h"
#include "program.h"
#include "train/setup/device.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/stream.h"

namespace chimera::apps {
namespace {

using Words = std::vector<std::string>;

constexpr std::chrono::hours kPatience{6};  // long enough for large models

// The command line of the hosts. All options are given, so that a host with another version cannot use other defaults.
Words profile_command(const ProfileOptions& options) {
  Words words = CLI::detail::split_up(
      fmt::format("{} --format json --dtype {} --threads {} --tensor-parallel {} --seconds {} --micro-batch-sizes {}",
                  kProfile.name, to_text(options.dtype), options.threads, fmt::join(options.tensor_parallel, ","),
                  options.seconds, fmt::join(options.micro_batch_sizes, ",")));
  words.insert(words.end(), {"--model", fmt::format("{}", fmt::join(options.models, ","))});
  if (options.sequence) words.insert(words.end(), {"--sequence", std::to_string(*options.sequence)});
  return words;
}

std::vector<MachineProfile> measure_each(const HostFlags& flags, const std::vector<HostRanks>& hosts,
                                         const ProfileOptions& options) {
  // Hosts share no cores, so they measure themselves at the same time.
  const Words words = profile_command(options);
  const auto commands = mapped(hosts, [&](const HostRanks& host) { return remote_command(flags, host.host, words); });
  // Standard output is for the profile alone.
  std::cerr << fmt::format("{} hosts measure themselves, for {:g} s or more\n", hosts.size(), options.seconds);
  const SignalInbox signals;
  const auto replies = run_commands(commands, kPatience, signals);
  if (signals.has_signal()) throw Error("ended by a signal");
  std::vector<MachineProfile> machines;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::string& host = hosts[i].host;
    if (!replies[i]) throw Error(fmt::format("host {} has not measured itself within {} h", host, kPatience.count()));
    if (replies[i]->exit_code != 0)
      throw Error(fmt::format("host {} does not measure itself: {}", host, last_line(replies[i]->errors)));
    machines.push_back(machine_from_json(replies[i]->output, "the profile of host " + host));
  }
  return machines;
}

NodeLinks measure_links(const HostFlags& flags, const std::vector<HostRanks>& hosts, double seconds,
                        const std::string& interface) {
  // Two hosts stand for all: a plan assumes equal links between nodes.
  const std::string pair = hosts[0].host + "," + hosts[1].host;
  Words words = {"launch", "--hosts", pair, "--ssh", flags.ssh, "--program", flags.program};
  if (!flags.master.empty()) words.insert(words.end(), {"--master", flags.master});
  words.insert(words.end(), {"--", kProfile.name, kLinksFlag, "--seconds", fmt::format("{}", seconds)});
  if (!interface.empty()) words.insert(words.end(), {"--interface", interface});
  std::cerr << fmt::format("{} and {} measure the links between them\n", hosts[0].host, hosts[1].host);
  const CommandResult measured = run_this_program(words);
  if (measured.exit_code != 0) throw Error(fmt::format("the links between {} are not measured", pair));
  return node_links_from_json(measured.output, "the links between " + pair);
}

struct Flags {
  ProfileOptions options;
  std::vector<std::string> merged;  // --merge
  std::string between;              // profile that receives the links between two hosts
  bool links = false;               // print only these links, for measure_hosts()
  HostFlags on;                     // hosts to measure; empty: this machine
  DeviceKind device = DeviceKind::Cpu;
  std::string interface;
  std::string name;
  std::string output;
  std::string measuring;   // the first given flag of a measurement
  bool has_model = false;  // --model is given
  Format format = Format::Text;
};

void check_output(const Flags& flags) {
  if (!flags.output.empty() && flags.output != "-") require_writable_whole(flags.output);
}

/// Prints the text, or the profile as JSON, and writes the profile to --output.
void print(const Flags& flags, const MachineProfile& machine, const std::string& text) {
  if (flags.output == "-") return write_output("", to_json(machine));
  if (!flags.output.empty()) write_whole(flags.output, to_json(machine));
  write_output("", flags.format == Format::Json ? to_json(machine) : text);
}

void merge(const Flags& flags) {
  const auto machines = mapped(flags.merged, [](const std::string& path) { return read_machine(machine_file(path)); });
  MachineProfile machine = merge_machines(machines);
  if (!flags.name.empty()) machine.name = flags.name;
  print(flags, machine,
        fmt::format("{}: {} of {}\n", machine.name, counted(machine.layers.size(), "layer"),
                    counted(machines.size(), "profile")));
}

void measure_as_rank(const Flags& flags, const RankEnvironment& rank) {
  // A rank of training has the same threads, and the profile predicts its times.
  at::set_num_interop_threads(1);
  at::set_num_threads(static_cast<int>(flags.options.threads));
  const auto transport = connect_gloo({.rank = rank.rank,
                                       .world_size = rank.world_size,
                                       .rendezvous = rank.rendezvous,
                                       .groups = profile_groups(flags.options, available_cores())});
  // Blanks at the end overwrite what a longer text has left of the line.
  const auto say = [&](const std::string& words) {
    if (rank.rank == 0) messages().show(fmt::format("\r{:<40}", words));
  };
  MachineMeasurement report = measure_machine(flags.options, *transport, rank.rank, say);
  if (rank.rank != 0) return;
  say("");
  messages().write("\r");
  if (!flags.name.empty()) report.machine.name = flags.name;
  print(flags, report.machine, to_text(report));
}

/// Checks and measures the GPU of one rank of several. Other numbers than those of layers, memory and links are those
/// of a shipped profile.
void measure_gpu(const Flags& flags, const RankEnvironment& rank) {
  set_unless_set(cuda_variables());
  const Accelerator& gpus = accelerator();
  const int gpu = rank.rank % gpus.num_devices();
  const at::Device device(gpus.type(), static_cast<c10::DeviceIndex>(gpu));
  const PooledStreamGuard stream(device);
  const std::string name = gpus.traits(gpu).name;
  const auto known = [&](const char* part) { return name.find(part) != std::string::npos; };
  const std::string base = machine_file(known("H200") ? "h200" : known("A100") ? "a100-80gb" : "h100-80gb");
  MachineProfile machine = read_machine(base);
  NcclOptions connections = connections_of_check(rank.rank, rank.world_size, gpu);
  connections.rendezvous = rank.rendezvous;
  const auto transport = gpus.connect(connections);
  std::string text = check_gpus(gpus, device, *transport, rank.rank, rank.world_size, machine);
  ProfileOptions options = flags.options;
  options.device = device;
  // Layers of the default models, which are small, would say little about larger ones.
  if (flags.has_model) machine.layers = measure_device_layers(options, *transport, rank.rank, rank.world_size);
  if (rank.rank != 0) return;
  machine.sources.push_back(
      fmt::format("chimera profile --device cuda: {}memory and links within a node of {}; else as {}",
                  flags.has_model ? "layers, " : "", name, machine.name));
  machine.name = flags.name.empty() ? host_name() : flags.name;
  print(flags, machine, flags.has_model ? text + "\n" + to_text(machine.layers) : text);
}

void measure_between(const Flags& flags, const Invocation& invocation) {
  constexpr int kHosts = 2;
  constexpr double kShareOfSeconds = 0.15;  // as in profiles of a single host
  const auto place = invocation.rank ? invocation.rank->remote : invocation.place;
  if (!place || place->world_size != kHosts) {
    reject(
        "--between measures from one host to another: start it once on each of two, as in `chimera launch --hosts a,b "
        "-- profile --between here.json --output cluster.json`");
  }
  const int self = place->rank;
  const bool has_profile = self == 0 && !flags.between.empty();
  const MachineProfile machine = has_profile ? read_machine(machine_file(flags.between)) : MachineProfile{};
  // Only rank 0 writes.
  if (self == 0) check_output(flags);
  at::set_num_threads(1);
  RankEnvironment rank = invocation.rank ? *invocation.rank : join_external_launcher(*place);
  if (!flags.interface.empty()) rank.rendezvous.interface = flags.interface;
  // Two ranks on one machine, as in tests, would otherwise sum in shared memory, which is not the link to measure.
  const auto transport = connect_gloo({.rank = self,
                                       .world_size = kHosts,
                                       .rendezvous = rank.rendezvous,
                                       .groups = profile_groups(),
                                       .share_memory = false});
  LinkSamples samples;
  const NodeLinks links = measure_between_hosts(*transport, self, kShareOfSeconds * flags.options.seconds, samples);
  if (self != 0) return;
  if (flags.links) return write_output("", to_json(links));
  MachineProfile whole = with_links_between(machine, links);
  if (!flags.name.empty()) whole.name = flags.name;
  print(flags, whole, to_text(links) + regression_errors_of(samples, links.messages, links.sums));
}

/// Profiles all hosts in parallel, then the links between the first two, and prints one profile.
void measure_hosts(const Flags& flags) {
  // A path that cannot be written is found before the minute of measurements.
  check_output(flags);
  constexpr int kNotGiven = 0;  // see with_links_between()
  const std::vector<HostRanks> hosts = parse_hosts(flags.on.hosts, kNotGiven);
  if (hosts.size() < 2) reject("--hosts: give two hosts or more, as in a,b, to measure the links between them");
  const int ranks = hosts.front().count;
  for (const HostRanks& host : hosts) {
    if (host.count != ranks)
      reject(
          "--hosts: give every host the same number of ranks, as in a:2,b:2, or give no numbers; a plan needs equal "
          "nodes");
  }
  MachineProfile machine = merge_machines(measure_each(flags.on, hosts, flags.options));
  NodeLinks links = measure_links(flags.on, hosts, flags.options.seconds, flags.interface);
  machine = with_links_between(machine, links, ranks);
  if (!flags.name.empty()) machine.name = flags.name;
  links.step_overhead = machine.step_overhead;
  print(
      flags, machine,
      fmt::format("{}: {}; between nodes:\n{}", machine.name, counted(machine.layers.size(), "layer"), to_text(links)));
}

void warn_if_busy() {
  constexpr double kBusy = 0.5;  // load per core
  const auto minute = parse_number<double>(load_average());
  const int cores = available_cores();
  if (!minute || *minute < kBusy * cores) return;
  print_message(
      "the machine is busy (load {:.1f} on {}); the profile will have too long times, so measure again "
      "when it is idle",
      *minute, counted(cores, "core"));
}

void run(const Flags& flags, const Invocation& invocation, int& exit_code) {
  const bool on_gpus = flags.device == DeviceKind::Cuda;
  if (invocation.rank && !invocation.rank->remote)
    return on_gpus ? measure_gpu(flags, *invocation.rank) : measure_as_rank(flags, *invocation.rank);
  const int ways = (flags.on.hosts.empty() ? 0 : 1) + (flags.between.empty() ? 0 : 1) + (flags.merged.empty() ? 0 : 1);
  if (ways > 1) reject("--hosts, --between and --merge are three ways to a profile; give one of them");
  if (on_gpus) {
    if (ways > 0) reject("--device cuda measures the GPUs of this host alone; leave out the other way");
    if (const std::string problem = accelerator().problem(); !problem.empty())
      reject("--device cuda: no usable GPU here ({})", problem);
    check_output(flags);
    // Ranks start by exec: CUDA does not outlive a fork.
    exit_code =
        launch({.ranks = ranks_share_gpus() ? 2 : accelerator().num_devices(), .arguments = invocation.arguments});
    return;
  }
  if (flags.links || !flags.between.empty()) return measure_between(flags, invocation);
  if (!flags.on.hosts.empty()) return measure_hosts(flags);
  if (!flags.interface.empty()) reject("--interface belongs to --hosts or --between");
  if (!flags.merged.empty()) {
    if (!flags.measuring.empty()) reject("{}: --merge measures nothing; leave one of them out", flags.measuring);
    return merge(flags);
  }
  // Errors of flags come before the start of ranks, which would each report them.
  require_measurable(flags.options, available_cores());
  check_output(flags);
  warn_if_busy();
  exit_code = launch({.ranks = profile_ranks(flags.options, available_cores()).started,
                      .arguments = invocation.arguments,
                      .entry = invocation.entry});
}

void add_flags(CLI::App& command, Flags& flags) {
  ProfileOptions& o = flags.options;
  begin_group(command, heading::kMeasuring);
  complete_names(
      command.add_option("--model", o.models, "models whose layers are measured (default gpt2-mini,bert-tiny)")
          ->delimiter(',')
          ->type_name("NAME,NAME"),
      preset_names());
  command.add_option("--micro-batch-sizes", o.micro_batch_sizes, "micro-batch sizes to measure (default 1,2,4,8)")
      ->delimiter(',')
      ->type_name("N,N");
  add_count(command, "--sequence", o.sequence,
            "tokens per sequence (default 128, or the positions of a model with fewer)");
  add_choice(command, "--device", flags.device, "cuda: check this host's GPUs, and measure layers of --model on them");
  add_choice(command, "--dtype", o.dtype, "type of computation (default float32)");
  command
      .add_option("--tensor-parallel", o.tensor_parallel,
                  "also measure layers that so many ranks share, and their sums inside ops; 1: none (default 2, if so "
                  "many ranks compute)")
      ->delimiter(',')
      ->type_name("T,T");
  add_count(command, "--threads", o.threads, "intra-op threads of a worker (default 1)");
  add_number(command, "--seconds", o.seconds,
             "time for the measurements; exceeded if a few repetitions of each take longer (default 45)");
  command.add_option("--merge", flags.merged, "merge these profiles of similar nodes and measure nothing")
      ->type_name("FILE FILE");
  add_path(command, "--between", flags.between,
           "measure only the links between the two hosts of this job, and add them to this profile of one host");
  add_string(
      command, "--interface", flags.interface, "NAME",
      "network interface that --hosts and --between measure, such as eth0 (default: the route to the first host)");
  add_hosts(command, flags.on,
            "hosts to profile, such as a,b,c; or a:2,b:2 with ranks per host (default: as many as fit its cores). Each "
            "host measures itself, and the first two their links. Reached by ssh (default: this machine)");
  add_ssh_flags(command, flags.on);
  command.add_flag(kLinksFlag, flags.links)->group("");
  add_string(command, "--name", flags.name, "TEXT", "name of the machine in the profile (default: its host name)");
  begin_group(command, heading::kOutput);
  add_output_checks(command, {add_path(command, "--output", flags.output, "write the profile to this file")});
  add_format(command, flags.format, {Format::Text, Format::Json});
}

}  // namespace

void add_profile(CLI::App& program, const Invocation& invocation, int& exit_code) {
  auto* command = program.add_subcommand(kProfile.name, kProfile.description);
  command->footer(
      "Examples:\n"
      "  chimera profile --output here.json\n"
      "  chimera profile --model gpt2 --micro-batch-sizes 1,2 --sequence 256 --output here.json\n"
      "  chimera profile --merge node-a.json node-b.json --output both.json\n"
      "  chimera profile --device cuda --model llama-3-8b --dtype bfloat16 --output here.json\n"
      "  chimera profile --hosts a,b --output cluster.json\n"
      "  chimera launch --hosts a,b -- profile --between here.json --output cluster.json\n"
      "\nThe measurement takes about a minute; run nothing else meanwhile. It times layers, messages, all-reduces and "
      "optimizer updates in several processes at the same time, as in training. A profile of one machine assumes that "
      "links between nodes are as fast as links within a node; --hosts and --between measure them.\n"
      "\nMore: docs/machine_profile.md");
  auto flags = std::make_shared<Flags>();
  add_flags(*command, *flags);
  command->callback([command, flags, &invocation, &exit_code] {
    // Also in the ranks: whether an op gets its memory from the kernel or from free lists changes its time.
    keep_freed_memory();  // as in the trainer
    for (const char* flag :
         {"--seconds", "--threads", "--dtype", "--sequence", "--micro-batch-sizes", "--model", "--tensor-parallel"})
      if (command->count(flag) > 0) flags->measuring = flag;
    flags->has_model = command->count("--model") > 0;
    require_effect(*command, {"--ssh", "--master", "--program"}, command->count("--hosts") > 0, "--hosts");
    run(*flags, invocation, exit_code);
  });
}

}  // namespace chimera::apps

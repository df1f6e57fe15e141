"use strict";
// The room Plan: finds the fastest way to train a model on a number of workers.

function secondsText(seconds) {
  return seconds < 1 ? `${Number((seconds * 1000).toPrecision(4))} ms` : `${Number(seconds.toPrecision(4))} s`;
}

function planRoom(room) {
  const builtIn = Object.keys(machines);
  const chosen = chosenIn("plan", {
    model: "bert-48", overrides: {}, ...kUsualWorkload, workers: 16, miniBatch: 128, memory: 0, machine: builtIn[0],
    ownMachine: "", schedules: [], shardOptimizer: false, top: 10});
  const status = make("p", {class: "said", role: "status", hidden: true});
  const bar = make("progress", {hidden: true, "aria-label": "schedules planned"});
  const content = make("div", {class: "results"});
  const engines = new Engines();
  const changed = () => saveState();
  const take = (name) => (value) => {
    chosen[name] = value;
    changed();
  };
  const go = button("Plan", plan, {class: "main"});
  const stop = button("Stop", () => engines.stop(), {disabled: true});
  const profile = () => chosen.machine === "loaded" ? chosen.ownMachine : machines[chosen.machine];

  /** Plans one schedule after the other, so that the best candidates so far can be shown. */
  async function plan() {
    go.disabled = true;
    stop.disabled = false;
    const names = chosen.schedules.length > 0 ? chosen.schedules
        : catalog.schedules.filter((each) => each.synchronous).map((each) => each.name);
    const request = {
      do: "plan", model: chosen.model, overrides: chosen.overrides, workers: chosen.workers,
      mini_batch: chosen.miniBatch, memory_bytes: chosen.memory * 2 ** 30, sequence: chosen.sequence,
      dtype: chosen.dtype, optimizer: chosen.optimizer, dropout: chosen.dropout,
      shard_optimizer: chosen.shardOptimizer, top: chosen.top, machine: profile()};
    const answers = names.map(() => null);
    let done = 0;
    const began = performance.now();
    bar.max = names.length;
    bar.value = 0;
    bar.hidden = false;
    content.replaceChildren();
    const tell = (end) => {
      const found = answers.filter((each) => each !== null);
      const sum = (field) => found.reduce((total, {report}) => total + report[field], 0).toLocaleString("en");
      say(status, `${done} of ${names.length} schedules; ${sum("considered")} candidates, ${sum("too_large")} do not ` +
          `fit; ${((performance.now() - began) / 1000).toFixed(1)} s${end}`);
    };
    tell("");
    let refusal = null;
    await engines.askAll(names.map((name) => ({...request, schedules: [name]})), (i, answer) => {
      bar.value = ++done;
      if (answer instanceof Error) refusal ??= answer;
      else answers[i] = answer;
      if (answers.some((each) => each !== null)) show(merged(answers));
      tell("…");
    });
    bar.hidden = true;
    if (refusal && answers.every((each) => each === null)) say(status, refusal.message, true);
    else tell(engines.stopped ? "; stopped" : "");
    go.disabled = false;
    stop.disabled = true;
  }

  /** Joins the answers for single schedules; null: no answer. */
  function merged(answers) {
    const given = answers.filter((each) => each !== null);
    const rows = given.flatMap(({report, open}) => report.candidates.map((candidate, i) => [candidate, open[i]]));
    const {tie} = given[0].report;
    rows.sort(([a], [b]) => a.step_seconds - b.step_seconds);
    const best = rows[0][0].step_seconds;
    const ties = rows.filter(([{step_seconds: seconds}]) => seconds <= (1 + tie) * best);
    ties.sort(([a], [b]) => a.peak_memory_bytes - b.peak_memory_bytes);
    rows.splice(0, ties.length, ...ties);
    rows.splice(chosen.top);
    const more = given.filter(({report}) => report.with_twice_the_memory?.step_seconds < best * 0.999).sort(
        (a, b) => a.report.with_twice_the_memory.step_seconds - b.report.with_twice_the_memory.step_seconds)[0];
    return {machine: given[0].machine, open: rows.map(([, open]) => open), more_memory_words: more?.more_memory_words,
            report: {candidates: rows.map(([candidate]) => candidate), tie, tied: Math.min(ties.length, rows.length),
                     with_twice_the_memory: more?.report.with_twice_the_memory}};
  }

  function show(answer) {
    const {report, open} = answer;
    const best = report.candidates[0];
    const rows = report.candidates.map((candidate, i) => [
      i + 1, button("Open", () => openCandidate(answer, i), {"aria-label": `Open candidate ${i + 1} in Schedules`}),
      open[i].words.replace(/\s{2,}/g, "  "), secondsText(candidate.step_seconds),
      secondsText(open[i].least_seconds), Number(candidate.sequences_per_second.toPrecision(4)),
      Number(candidate.bubble_ratio.toFixed(3)), bytes(candidate.peak_memory_bytes), candidate.recompute,
      candidate.partition === "even" ? "even" : "uneven",
      candidate.equation_1 ? secondsText(candidate.equation_1.seconds) : "–"]);
    content.replaceChildren(
        make("h2", {}, open[0].words), gains(answer, best), tieText(report),
        stackedBars({title: "Step time of the candidates: ops, and idle time by cause", text: secondsText,
                     bars: report.candidates.map((candidate, i) => ({
                       label: `${i + 1}. ${candidate.schedule}`,
                       parts: [{name: "ops", amount: candidate.busy_seconds, color: catalog.op_colors[0]},
                               ...Object.entries(candidate.idle_seconds).map(([field, amount]) => {
                                 const name = field.replace("_", "-");
                                 return {name: `idle: ${name}`, amount, color: kCauseColors[name]};
                               })]}))}),
        table("Candidates, fastest first",
              ["", "", "schedule", "step", "bound", "seq/s", "bubble", "memory", "recompute", "partition",
               "equation 1"],
              rows),
        make("div", {class: "field"}, make("b", {}, "Training command"),
             make("pre", {}, trainLine(open[0])), row(copyButton("Copy command", () => trainLine(open[0])))),
        assumptions());
  }

  function tieText({tied, tie}) {
    if (tied < 2) return "";
    return make("p", {class: "verdict"}, make("b", {}, "A tie: "), `rows 1 to ${tied} differ by less than ` +
        `${number(100 * tie)} %, so the one with most room is first.`);
  }

  function assumptions() {
    const lines = (JSON.parse(profile()).sources ?? []).filter((line) => line.startsWith("Assumed: "));
    if (lines.length === 0) return "";
    return make("div", {class: "field"}, make("b", {}, "Assumed"),
                make("ul", {class: "gains"}, lines.map((line) => make("li", {}, line.slice(9)))));
  }

  function trainLine({train}) {
    const sizes = Object.entries(chosen.overrides).map(([name, value]) => `--${name.replaceAll("_", "-")} ${value}`);
    return ["chimera train --model", chosen.model, ...sizes, "--data FILE --sequence", chosen.sequence, "--dtype",
            chosen.dtype, "--optimizer", chosen.optimizer, ...(chosen.dropout ? ["--dropout 0.1"] : []),
            ...(JSON.parse(profile()).cores > 0 ? [] : ["--device cuda"]), ...train].join(" ");
  }

  function gains({report, more_memory_words: words}, best) {
    const times = (seconds) => `${secondsText(seconds)}, ${(best.step_seconds / seconds).toFixed(2)} times as fast`;
    const step = secondsText(best.step_seconds);
    const lines = [`Predicted: ${step} per step, peak memory ${bytes(best.peak_memory_bytes)} per worker.`,
                   `With an infinitely fast network: ${times(best.free_network_seconds)}.`];
    if (best.recompute !== "none") {
      lines.push(`With enough memory to avoid recomputation: ${times(best.without_recomputation_seconds)}.`);
    }
    const more = report.with_twice_the_memory;
    const gain = more ? `${times(more.step_seconds)}: ${words}` : "no gain";
    lines.push(`With twice the memory: ${gain}.`);
    return make("ul", {class: "gains"}, lines.map((line) => make("li", {}, line)));
  }

  function openCandidate({open, machine, report}, i) {
    const {schedule, costs, words} = open[i];
    rooms.schedules.open({choices: [{name: schedule.name, parameters: schedule.parameters}], stages: schedule.stages,
                          microBatches: schedule.micro_batches,
                          costs: {file: costs.file, data_parallel: report.candidates[i].data_parallel,
                                  source: `the plan for ${machine}: ${words}; seconds and bytes`}});
  }

  const file = make("input", {type: "file", accept: ".json", class: "hidden",
                              "aria-label": "Load a machine profile"});
  file.addEventListener("change", async () => {
    if (file.files.length === 0) return;
    chosen.ownMachine = await file.files[0].text();
    chosen.machine = "loaded";
    fillMachine();
    changed();
  });
  const machine = make("div");
  function fillMachine() {
    const names = chosen.ownMachine ? [...builtIn, "loaded"] : builtIn;
    machine.replaceChildren(select("Machine", names, chosen.machine, take("machine"),
                                   "a profile from machines/, or one written by `chimera profile`"));
  }
  fillMachine();

  const pick = make("details", {}, make("summary", {}, "Schedules to consider"),
                    make("p", {class: "hint"}, "If none is selected: all synchronous schedules."),
                    catalog.schedules.map(({name}) => checkbox(name, chosen.schedules.includes(name), (on) => {
                      chosen.schedules = chosen.schedules.filter((each) => each !== name);
                      if (on) chosen.schedules.push(name);
                      changed();
                    })));
  layOut(room, [modelControls(chosen, changed),
                group("Workers", row(numberField("Workers P", chosen.workers, {least: 1, whole: true}, take("workers")),
                                     numberField("Mini-batch", chosen.miniBatch, {least: 1, whole: true},
                                                 take("miniBatch"), "sequences per step")),
                      numberField("Memory per worker, GiB (0: from the profile)", chosen.memory, {}, take("memory")),
                      machine, button("Load a profile", () => file.click()), file,
                      checkbox("shard the optimizer state (ZeRO-1)", chosen.shardOptimizer, take("shardOptimizer"))),
                workloadControls(chosen, changed), pick],
         [row(go, stop), bar, status, content]);
  plan();
  return {};
}

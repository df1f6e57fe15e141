"use strict";
// Schedules and their costs: code that the rooms Schedules and Editor share.

const kUsualCosts = {
  forward: 1, input_gradient: 1, weight_gradient: 1, latency: 0, stage_factors: "", all_reduce: 0, weights: 0,
  activations: 0, sync: "eager-opt", data_parallel: 1, blocking_sends: false,
  file: "", source: "",  // costs from a file, which replace the sliders, and their source
};

/** Returns the cost fields of a request. */
function costFields(costs) {
  const shared = {sync: costs.sync, data_parallel: costs.data_parallel, blocking_sends: costs.blocking_sends};
  if (costs.file !== "") return {...shared, costs: {file: costs.file}};
  const {forward, input_gradient, weight_gradient, latency, all_reduce, weights, activations} = costs;
  const own = {forward, input_gradient, weight_gradient, latency, all_reduce,
               activations: activations * 2 ** 30, weights: weights * 2 ** 30};
  const factors = costs.stage_factors.split(/[\s,;]+/).filter((text) => text !== "").map(Number);
  if (factors.length > 0) own.stage_factors = factors.map((factor) => Number.isFinite(factor) ? factor : -1);
  return {...shared, costs: own};
}

/** Returns the fields of a request for slow workers, such as `0:2, 3:1.5`. The effort allows answers in 100 ms. */
function slowFields(text) {
  const slow = text.replace(/\s/g, "");
  return slow === "" ? {} : {slow, effort: 1500000};
}

/** Makes the form of costs; calls `changed` after each change. build() rebuilds it for costs from a file or sliders. */
function costControls(costs, changed) {
  const place = make("div");
  const take = (name) => (value) => {
    costs[name] = value;
    changed();
  };
  const build = () => {
    const launches = row(
        select("Start", catalog.syncs, costs.sync, take("sync"),
               "eager: after a stage's last backward; post: after a worker's last op; eager-opt: early if the " +
                   "worker waits anyway"),
        numberField("Groups W", costs.data_parallel, {least: 1, whole: true}, take("data_parallel"),
                    "number of data-parallel groups"));
    if (costs.file !== "") {
      place.replaceChildren(group(
          "Costs", make("p", {}, `From ${costs.source}. Every stage, message and all-reduce has its own cost.`),
          button("Use sliders instead", () => {
            costs.file = costs.source = "";
            build();
            changed();
          })), group("Gradient all-reduce", launches));
      return;
    }
    const time = (text, name, to, title) => slider(text, costs[name], {to, step: to / 40}, take(name), title);
    place.replaceChildren(
        group("Op times on one worker",
              time("F, forward", "forward", 4, "all stages of one worker, one micro-batch"),
              time("I, input gradient", "input_gradient", 4, "a whole backward takes I + W"),
              time("W, weight gradient", "weight_gradient", 4, "a whole backward takes I + W"),
              time("Message latency", "latency", 2, "between workers; neither is busy meanwhile"),
              textField("Stage factors", costs.stage_factors, "1, 1, 1.5, 1", take("stage_factors"),
                        "one number per stage that multiplies the times of its ops; empty: all equal"),
              checkbox("sends block until the message arrives", costs.blocking_sends, take("blocking_sends"))),
        group("Gradient all-reduce",
              time("All-reduce of a stage", "all_reduce", 4, "0: not shown"),
              launches),
        group("Memory in GiB",
              slider("Weights and state", costs.weights, {to: 64, step: 0.5}, take("weights"),
                     "of one worker's share of the model; if both are 0, memory is shown in stage units"),
              slider("Activations", costs.activations, {to: 16, step: 0.1}, take("activations"),
                     "of one micro-batch on one worker's share of the model")));
  };
  build();
  return {place, build};
}

function entryOf(name) {
  return catalog.schedules.find((each) => each.name === name) ?? catalog.schedules[0];
}

function axisOf(name) {
  return catalog.axes.find((each) => each.name === name);
}

/** Returns {name, parameters} of a schedule with default parameters. */
function usualChoice(name) {
  return {name, parameters: {...entryOf(name).parameters}};
}

/** Returns the schedule field of a request, without parameters that the schedule does not have. */
function scheduleField(choice, stages, microBatches) {
  if (choice.text) return {text: choice.text};
  const entry = entryOf(choice.name);
  const parameters = {};
  for (const [name, usual] of Object.entries(entry.parameters)) parameters[name] = choice.parameters?.[name] ?? usual;
  return {name: entry.name, stages: choice.stages ?? stages, micro_batches: choice.micro_batches ?? microBatches,
          parameters};
}

/** Makes the input fields of the schedule's parameters. */
function parameterFields(choice, changed) {
  const entry = entryOf(choice.name);
  return Object.entries(entry.parameters).map(([name, usual]) => {
    const axis = axisOf(name);
    const take = (value) => {
      choice.parameters = {...choice.parameters, [name]: value};
      changed();
    };
    const value = choice.parameters?.[name] ?? usual;
    const text = axis.symbol ? `${axis.symbol} (${name})` : name;
    if (axis.values.length > 0) return select(text, axis.values, value, take, axis.meaning);
    if (name === "slices") return slider(text, value, {from: 1, to: 16, step: 1, whole: true}, take, axis.meaning);
    return numberField(text, value, {least: axis.least, whole: true}, take, axis.meaning);
  });
}

/** Returns the parameters that differ from their defaults, for example `2f 4` or `scale doubling`. */
function unusualParameters(choice) {
  const usual = entryOf(choice.name).parameters;
  return Object.entries(choice.parameters ?? {}).filter(([name, value]) => name in usual && value !== usual[name])
      .map(([name, value]) => `${axisOf(name).symbol || name} ${value}`);
}

/** Returns the answer's panel; its title includes the parameters that differ from their defaults. */
function panelOf(answer, choice) {
  const panel = new Panel(answer.panel);
  const values = choice.text ? [] : unusualParameters(choice);
  if (values.length > 0) panel.title += `, ${values.join(", ")}`;
  return panel;
}

const kCauseColors = {"warm-up": "#7a7a7a", "dependency": "#a9a9a9", "latency": "#0072b2", "sync": "#d8c01a",
                      "imbalance": "#cc79a7"};

/** Makes bars of the shares of all workers' time: ops, and idle time by cause. */
function timeShares(panels, totals) {
  const bars = totals.map((each, i) => {
    const busy = each.workers.reduce((sum, worker) => sum + worker.busy, 0);
    const all = each.makespan * each.workers.length || 1;
    const parts = [{name: "ops", amount: 100 * busy / all, color: catalog.op_colors[0]}];
    for (const [name, time] of Object.entries(each.idle)) {
      parts.push({name: `idle: ${name}`, amount: 100 * time / all, color: kCauseColors[name]});
    }
    return {label: panels[i].title, parts, amount: `${(100 * busy / all).toFixed(1)} % in ops`};
  });
  return stackedBars({title: "Share of worker time", bars, text: (value) => `${value.toFixed(1)} %`});
}

/** Describes the critical path in one sentence. */
function criticalPathText(panel) {
  const path = [...panel.criticalPath];
  if (path.length === 0) return "";
  const counts = kLetters.map((letter, kind) => [path.filter((op) => panel.ops.kind[op] === kind).length, letter]);
  const inOps = path.reduce((sum, op) => sum + panel.ops.end[op] - panel.ops.start[op], 0);
  const kinds = counts.filter(([count]) => count > 0).map(([count, letter]) => `${count} ${letter}`).join(" and ");
  return `${panel.title}: the critical path spends ${number(inOps)} in ${kinds}, from ${panel.place(path[0])} to ` +
      `${panel.place(path[path.length - 1])}, and ${number(panel.makespan - inOps)} between and after its ops.`;
}

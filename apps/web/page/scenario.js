"use strict";
// Which schedules at which costs: what the rooms Schedules and Your own have in common.

const kUsualCosts = {
  forward: 1, input_gradient: 1, weight_gradient: 1, latency: 0, stage_factors: "", all_reduce: 0, weights: 0,
  activations: 0, sync: "eager-opt", data_parallel: 1, blocking_sends: false,
  file: "", source: "",  // costs from elsewhere, which replace the sliders, and where they are from
};

/** The fields of a request that say what things cost. */
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

/** The form of costs. Calls `changed` with each change; rebuilt where costs from elsewhere come or go. */
function costControls(costs, changed) {
  const place = make("div");
  const take = (name) => (value) => {
    costs[name] = value;
    changed();
  };
  const build = () => {
    const launches = row(
        select("Launched", catalog.syncs, costs.sync, take("sync"),
               "eager: after a stage's last backward; post: after a worker's last op; eager-opt: early where the " +
                   "worker waits anyway"),
        numberField("Groups W", costs.data_parallel, {least: 1, whole: true}, take("data_parallel"),
                    "data-parallel groups that sum together"));
    if (costs.file !== "") {
      place.replaceChildren(group(
          "Costs", make("p", {}, `From ${costs.source}: every stage, message and sum as it was measured or counted.`),
          button("Use sliders instead", () => {
            costs.file = costs.source = "";
            build();
            changed();
          })), group("Sums of gradients", launches));
      return;
    }
    const time = (text, name, to, title) => slider(text, costs[name], {to, step: to / 40}, take(name), title);
    place.replaceChildren(
        group("Times of a worker's share",
              time("F, forward", "forward", 4, "all stages of one worker, one micro-batch"),
              time("I, input gradient", "input_gradient", 4, "a whole backward takes I + W"),
              time("W, weight gradient", "weight_gradient", 4, "a whole backward takes I + W"),
              time("Latency of a message", "latency", 2, "between workers, without occupying either"),
              textField("Factors of stages", costs.stage_factors, "1, 1, 1.5, 1", take("stage_factors"),
                        "one number a stage, by which its ops take longer; empty: all alike"),
              checkbox("a sender waits until its message has arrived", costs.blocking_sends, take("blocking_sends"))),
        group("Sums of gradients",
              time("All-reduce of a stage", "all_reduce", 4, "0: not shown"),
              launches),
        group("Memory in GiB",
              slider("Weights and state", costs.weights, {to: 64, step: 0.5}, take("weights"),
                     "of a worker's share of the model; 0 and 0: activations in stage units"),
              slider("Activations", costs.activations, {to: 16, step: 0.1}, take("activations"),
                     "of one micro-batch on a worker's share")));
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

/** {name, parameters} of a schedule as it usually is. */
function usualChoice(name) {
  return {name, parameters: {...entryOf(name).parameters}};
}

/** As a request has it; what a schedule does not take is left out. */
function scheduleField(choice, stages, microBatches) {
  if (choice.text) return {text: choice.text};
  const entry = entryOf(choice.name);
  const parameters = {};
  for (const [name, usual] of Object.entries(entry.parameters)) parameters[name] = choice.parameters?.[name] ?? usual;
  return {name: entry.name, stages: choice.stages ?? stages, micro_batches: choice.micro_batches ?? microBatches,
          parameters};
}

/** The fields of the schedule's own parameters, whatever they are. */
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
    return numberField(text, value, {least: axis.least, whole: true}, take, axis.meaning);
  });
}

/** `2f 4`, `scale doubling`: the parameters that are not as they usually are. */
function unusualParameters(choice) {
  const usual = entryOf(choice.name).parameters;
  return Object.entries(choice.parameters ?? {}).filter(([name, value]) => name in usual && value !== usual[name])
      .map(([name, value]) => `${axisOf(name).symbol || name} ${value}`);
}

/** The panel as the drawing code has it; its title says what is special about the schedule. */
function panelOf(answer, choice) {
  const panel = new Panel(answer.panel);
  const values = choice.text ? [] : unusualParameters(choice);
  if (values.length > 0) panel.title += `, ${values.join(", ")}`;
  return panel;
}

const kCauseColors = {"warm-up": "#7a7a7a", "dependency": "#a9a9a9", "latency": "#0072b2", "sync": "#d8c01a",
                      "imbalance": "#cc79a7"};

/** Where the time of all workers goes: ops, and idle time by cause, as shares. */
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
  return stackedBars({title: "Where the workers' time goes", bars, text: (value) => `${value.toFixed(1)} %`});
}

/** The critical path in a sentence. */
function criticalPathText(panel) {
  const path = [...panel.criticalPath];
  if (path.length === 0) return "";
  const counts = kLetters.map((letter, kind) => [path.filter((op) => panel.ops.kind[op] === kind).length, letter]);
  const inOps = path.reduce((sum, op) => sum + panel.ops.end[op] - panel.ops.start[op], 0);
  const kinds = counts.filter(([count]) => count > 0).map(([count, letter]) => `${count} ${letter}`).join(" and ");
  return `${panel.title}: the critical path runs ${number(inOps)} in ${kinds}, from ${panel.place(path[0])} to ` +
      `${panel.place(path[path.length - 1])}; ${number(panel.makespan - inOps)} between and after its ops.`;
}

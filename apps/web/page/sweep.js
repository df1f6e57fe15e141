"use strict";
// Charts of a measure of the schedules over one parameter.

const kSwept = {
  "N, micro-batches": {field: "microBatches", whole: true},
  "D, workers": {field: "stages", whole: true},
  "F, forward": {cost: "forward"},
  "I, input gradient": {cost: "input_gradient"},
  "W, weight gradient": {cost: "weight_gradient"},
  "latency": {cost: "latency"},
  "all-reduce": {cost: "all_reduce"},
};
const kMeasures = {
  "makespan": (totals) => totals.makespan,
  "bubble ratio": (totals) => totals.bubble_ratio,
  "peak memory": (totals) => totals.peak,
  "makespan / lower bound": (totals) => totals.makespan / totals.lower_bound,
};

/** Makes the controls of a sweep. `scenario()` returns {choices, stages, microBatches, costs, slow}. */
function sweepControls(chosen, engine, scenario, changed) {
  const take = (name) => (value) => {
    chosen[name] = value;
    changed();
  };
  const said = make("p", {role: "status", class: "said", hidden: true});
  const result = make("div");
  let stopped = false;
  const stop = button("Stop", () => stopped = true, {disabled: true});
  const go = button("Draw the chart", async () => {
    stopped = false;
    go.disabled = true;
    stop.disabled = false;
    try {
      await draw();
    } finally {
      go.disabled = false;
      stop.disabled = true;
    }
  }, {class: "main"});

  function values() {
    const {whole} = kSwept[chosen.over];
    const points = Math.min(200, Math.max(2, Math.floor((chosen.to - chosen.from) / chosen.step + 1e-9) + 1));
    const all = Array.from({length: points}, (_, i) => Number((chosen.from + i * chosen.step).toPrecision(10)));
    return whole ? [...new Set(all.map(Math.round))].filter((value) => value > 0) : all;
  }

  async function draw() {
    const {choices, stages, microBatches, costs, slow} = scenario();
    const {field, cost} = kSwept[chosen.over];
    const series = choices.map((choice) => ({name: nameOfChoice(choice), points: []}));
    const refused = new Map();
    const all = values();
    for (const [done, value] of all.entries()) {
      if (stopped) break;
      say(said, `${done} of ${all.length} points`);
      const shape = {stages, microBatches, [field]: value};
      const shared = {...slowFields(slow), ...costFields(cost ? {...costs, file: "", [cost]: value} : costs)};
      for (const [c, choice] of choices.entries()) {
        const schedule = scheduleField(choice, shape.stages, shape.microBatches);
        try {
          const {totals} = await engine.ask({do: "simulate", view: "totals", schedule, ...shared});
          series[c].points.push([value, kMeasures[chosen.measure](totals)]);
        } catch (error) {
          refused.set(error.message, (refused.get(error.message) ?? 0) + 1);
        }
      }
    }
    const drawn = series.filter((each) => each.points.length > 0);
    const left = [...refused].slice(0, 3).map(([message]) => message).join("; ");
    say(said, refused.size > 0 ? `Omitted: ${left}` : "", drawn.length === 0);
    const title = `${chosen.measure} over ${chosen.over}`;
    result.replaceChildren(drawn.length === 0 ? "" : chartWithData(
        {title, xLabel: chosen.over, yLabel: chosen.measure, series: drawn}));
  }

  const place = group(
      "Sweep",
      row(select("Over", Object.keys(kSwept), chosen.over, take("over")),
          select("Measure", Object.keys(kMeasures), chosen.measure, take("measure")),
          numberField("From", chosen.from, {}, take("from")), numberField("To", chosen.to, {}, take("to")),
          numberField("Step", chosen.step, {least: 1e-9}, take("step"))),
      row(go, stop), said, result);
  return place;
}

function nameOfChoice(choice) {
  return [choice.name, ...(choice.text ? [] : unusualParameters(choice))].join(", ");
}

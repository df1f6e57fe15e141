"use strict";
// The room Schedules: up to four schedules on one time axis.

const kMostSchedules = 4;
let firstPicture = null;  // milliseconds from the page's start to its first picture

function schedulesRoom(room) {
  const chosen = chosenIn("schedules", {
    stages: 4, microBatches: 8, choices: [usualChoice("chimera"), usualChoice("1f1b")], costs: {...kUsualCosts},
    figure: false, steps: 1, slow: "",
    sweep: {over: "N, micro-batches", measure: "bubble ratio", from: 4, to: 32, step: 4},
  });
  chosen.costs = {...kUsualCosts, ...chosen.costs};
  const engine = quickEngine;
  const status = make("p", {class: "said", role: "status", hidden: true});
  const totalsTable = make("table", {class: "totals"});
  const legend = make("div", {class: "legend", "aria-label": "legend"});
  const plotRoot = plotParts("schedules on one time axis; arrows pan, + and − zoom, f fits");
  const about = make("div", {class: "about"});
  const details = make("div");
  const list = make("div", {class: "choices"});
  let plot = null;
  let follower = null;
  let shown = [];  // {choice, answer, panel}

  const latest = new Latest(simulateAll);
  const changed = () => {
    saveState();
    latest.request();
  };

  async function simulateAll() {
    const request = (choice) => ({
      do: "simulate", view: chosen.figure ? "figure" : "panel", steps: chosen.figure ? 1 : chosen.steps,
      schedule: scheduleField(choice, chosen.stages, chosen.microBatches), ...slowFields(chosen.slow),
      ...costFields(chosen.costs)});
    const choices = [...chosen.choices];
    const results = await Promise.allSettled(choices.map((choice) => engine.ask(request(choice))));
    shown = [];
    const refused = [];
    results.forEach(({value, reason}, i) => {
      if (value) shown.push({choice: choices[i], answer: value, panel: panelOf(value, choices[i])});
      else refused.push(reason.message);
    });
    say(status, [...new Set(refused)].join("; "), true);
    if (shown.length > 0) show();
    firstPicture ??= performance.now();
  }

  function show() {
    const panels = shown.map((each) => each.panel);
    if (plot === null) makePlot(panels);
    plotRoot.style.height = `${heightOf(panels)}px`;
    plot.show(panels);
    fillTotals(totalsTable, panels);
    fillLegend(legend, plot);
    const slowdown = ({panel, answer}) => answer.lost ? make("p", {}, `${panel.title}: ${answer.lost}`) : null;
    details.replaceChildren(timeShares(panels, shown.map((each) => each.answer.totals)),
                            ...shown.map(slowdown).filter((each) => each !== null),
                            ...panels.map((panel) => make("p", {}, criticalPathText(panel))));
  }

  function makePlot(panels) {
    plot = new Plot(plotRoot, panels);
    plot.onRestyle = () => fillLegend(legend, plot);
    listenToKeys(plotRoot, plot.keys());
    follower = new Follower(plot);
    const {picture, view} = plot;
    const box = (text, on, choose) => {
      const label = checkbox(text, on, () => {});
      linkBox(label.firstElementChild, plot, choose);
      return label;
    };
    bar.replaceChildren(
        box("critical path", true, (on) => picture.show.critical = on),
        box("messages", false, (on) => picture.show.arrows = on),
        box("memory", true, (on) => view.memory = on),
        button("Fit", plot.keys().f), button("Rows −", plot.keys()["["]), button("Rows +", plot.keys()["]"]),
        exportMenu(() => shown[0]?.choice, () => ({
          schedule: scheduleField(shown[0].choice, chosen.stages, chosen.microBatches), steps: chosen.steps,
          ...slowFields(chosen.slow), ...costFields(chosen.costs)}), plot));
    followPlace.replaceChildren(follower.place);
    picture.resize();
    view.fit();
  }
  const bar = make("div", {class: "bar"});
  const followPlace = make("div");

  function fillChoices() {
    list.replaceChildren(...chosen.choices.map(choiceCard));
    add.disabled = chosen.choices.length >= kMostSchedules;
    const names = [...new Set(chosen.choices.filter((choice) => !choice.text).map((choice) => choice.name))];
    about.replaceChildren(...names.map((name) => {
      const entry = entryOf(name);
      const facts = `${entry.constraints}; makespan ${entry.closed_form}; in flight ${entry.activations}. ` +
          `Source: ${entry.source}.`;
      return make("details", {}, make("summary", {}, `About ${entry.name}`), make("p", {}, entry.rule),
                  make("p", {}, facts));
    }));
  }

  function choiceCard(choice, i) {
    const title = choice.text ? choice.name : `Schedule ${i + 1}`;
    const rename = (name) => {
      chosen.choices[i] = usualChoice(name);
      fillChoices();
      changed();
    };
    const remove = button("Remove", () => {
      chosen.choices.splice(i, 1);
      fillChoices();
      changed();
    }, {disabled: chosen.choices.length === 1, "aria-label": `Remove ${title}`});
    const edit = button("Edit", () => editElsewhere(choice), {title: "open this schedule in the editor"});
    const names = catalog.schedules.map((each) => each.name);
    const parts = choice.text ? [make("p", {}, "from the editor")] : [
      select(title, names, choice.name, rename), ...parameterFields(choice, changed)];
    return make("div", {class: "card"}, ...parts, row(edit, remove));
  }

  async function editElsewhere(choice) {
    const schedule = scheduleField(choice, chosen.stages, chosen.microBatches);
    try {
      const {text} = await engine.ask({do: "export", format: "csv", schedule});
      const start = choice.text ? null : {...choice, stages: schedule.stages, micro_batches: schedule.micro_batches};
      rooms.own.open({text, costs: {...chosen.costs}, start});
    } catch (error) {
      say(status, error.message, true);
    }
  }

  const add = button("Add a schedule", () => {
    const used = chosen.choices.map((choice) => choice.name);
    const free = catalog.schedules.find((each) => !used.includes(each.name)) ?? catalog.schedules[0];
    chosen.choices.push(usualChoice(free.name));
    fillChoices();
    changed();
  });

  const costs = costControls(chosen.costs, changed);
  const take = (name) => (value) => {
    chosen[name] = value;
    changed();
  };
  const shape = make("div", {class: "shape"});
  const fillShape = () => shape.replaceChildren(group(
      "Shape",
      slider("D, workers", chosen.stages, {from: 1, to: 64, step: 1, whole: true}, take("stages")),
      slider("N, micro-batches per step", chosen.microBatches, {from: 1, to: 256, step: 1, whole: true},
             take("microBatches")),
      textField("Slow workers", chosen.slow, "0:2, 3:1.5", take("slow"),
                "worker:factor; other workers with the same stages take a part of its ops; inf: the worker is lost"),
      numberField("Consecutive steps", chosen.steps, {least: 1, most: 100, whole: true}, take("steps")),
      checkbox("slots of equal length, as in the paper's figures", chosen.figure, take("figure"))));
  fillShape();
  fillChoices();
  layOut(room, [group("Schedules", list, add), shape, costs.place, about],
         [status, make("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "totals"}, totalsTable),
          legend, bar, plotRoot, details, followPlace,
          sweepControls(chosen.sweep, engine, () => chosen, saveState)]);
  latest.request();

  /** Shows a schedule from another room. */
  return {
    open({choices, stages, microBatches, costs: given}) {
      Object.assign(chosen, {choices, stages, microBatches, figure: false, steps: 1, slow: ""});
      Object.assign(chosen.costs, kUsualCosts, given);
      costs.build();
      fillShape();
      fillChoices();
      if (plot) plot.view.fitted = true;
      goTo("schedules");
      changed();
    },
  };
}

const kFiles = [
  ["Schedule, JSON", "json", "json"], ["Schedule, CSV", "csv", "csv"],
  ["PyTorch CSV with messages", "csv-communication", "csv"], ["Picture, SVG", "svg", "svg"],
  ["Figure with equal slots, SVG", "figure", "svg"], ["Timeline, JSON", "timeline", "json"],
  ["Perfetto trace", "perfetto", "json"],
];

/** Makes a menu that saves the first schedule as a file. `fields()` returns the fields of the request. */
function exportMenu(choice, fields, plot) {
  const png = "Picture, PNG";
  const menu = make("select", {"aria-label": "Save as a file"}, make("option", {value: ""}, "Save as…"),
                    [...kFiles.map(([name]) => name), png].map((name) => make("option", {}, name)));
  menu.addEventListener("change", async () => {
    const name = menu.value;
    menu.value = "";
    const stem = choice()?.name || "schedule";
    if (name === png) return plot.picture.base.canvas.toBlob((blob) => download(`${stem}.png`, blob));
    const file = kFiles.find(([each]) => each === name);
    if (!file) return;
    try {
      const {text} = await quickEngine.ask({do: "export", format: file[1], ...fields()});
      download(`${stem}.${file[2]}`, text);
    } catch (error) {
      alert(error.message);
    }
  });
  return menu;
}

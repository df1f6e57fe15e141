"use strict";
// The room Editor: a schedule edited as text, by keys and by dragging. Each change is checked, and a search can start
// from it.

const kFirstText = `0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3
1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3
2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3
`;

function ownRoom(room) {
  const chosen = chosenIn("own", {
    text: kFirstText, costs: {...kUsualCosts}, start: {...usualChoice("chimera"), stages: 4, micro_batches: 4},
    inFlight: 0});
  chosen.costs = {...kUsualCosts, ...chosen.costs};
  const past = new History();
  const verdict = make("div", {class: "verdict", role: "status"});
  const legend = make("div", {class: "legend", "aria-label": "legend"});
  const plotRoot = plotParts("your schedule; arrow keys select an op, Shift+arrow moves it, Delete removes it");
  const spoken = make("p", {class: "said", role: "status"});
  const details = make("div");
  const bar = make("div", {class: "bar"});
  const text = make("textarea", {class: "source", spellcheck: "false", rows: 12, wrap: "off",
                                 "aria-describedby": "own-help"});
  let plot = null;
  let current = null;  // the panel of the text
  let picked = null;   // {worker, position}
  let places = [];     // ops of the counterexample
  let drag = null;

  const latest = new Latest(examine);

  function fitRows() {
    text.rows = Math.min(16, Math.max(4, chosen.text.split("\n").length + 1));
  }

  function setText(next, {remember = true} = {}) {
    if (remember) past.push(chosen.text);
    chosen.text = next;
    text.value = next;
    fitRows();
    saveState();
    latest.request();
  }

  text.value = chosen.text;
  fitRows();
  text.addEventListener("input", () => {
    past.push(chosen.text);
    picked = null;
    spoken.textContent = "";
    chosen.text = text.value;
    saveState();
    latest.request();
  });

  function limitFields() {
    return chosen.inFlight > 0 ? {max_in_flight: chosen.inFlight} : {};
  }

  async function examine() {
    const began = performance.now();
    const request = {schedule: {text: chosen.text}, ...costFields(chosen.costs)};
    try {
      const checked = await quickEngine.ask({do: "check", ...request, ...limitFields()});
      const valid = checked.report.valid;
      const timed = valid ? await quickEngine.ask({do: "simulate", ...request}) : null;
      places = checked.report.violations[0]?.places ?? [];
      showVerdict(checked, timed);
      if (timed !== null || checked.panel) showPanel(timed ?? checked, checked);
    } catch (error) {
      verdict.className = "verdict bad";
      verdict.replaceChildren(make("b", {}, "Not a schedule"), make("p", {}, error.message));
    }
    verdict.dataset.milliseconds = (performance.now() - began).toFixed(1);
  }

  function showVerdict({report, excerpts}, timed) {
    if (report.valid) {
      const {makespan, lower_bound: bound, bubble_ratio: bubble} = timed.totals;
      verdict.className = "verdict good";
      verdict.replaceChildren(
          make("b", {}, "Valid"),
          make("p", {}, `Complete and correctly placed; its program cannot deadlock. Makespan ${number(makespan)}, ` +
              `lower bound ${number(bound)}, bubble ratio ${number(bubble)}.`),
          ...report.notes.map((note) => make("p", {}, `Note: ${note.message}`)));
      return;
    }
    const count = report.violations.length;
    verdict.className = "verdict bad";
    verdict.replaceChildren(
        make("b", {}, count === 1 ? "Not valid" : `Not valid: ${count} errors`),
        ...report.violations.slice(0, 4).flatMap((violation, i) => [
          make("p", {}, violation.message.split("; ").map((part) => make("span", {class: "link"}, part))),
          make("pre", {}, excerpts[i])]),
        count > 4 ? make("p", {}, `and ${count - 4} more`) : "");
  }

  function showPanel(answer, checked) {
    current = new Panel(answer.panel);
    const name = checked.report.name === "csv" ? "your schedule" : checked.report.name;
    current.title = checked.report.valid ? current.title.replace(/^csv/, name) : `${name}: ops that run`;
    current.visited = checked.visited ?? null;
    showPanels();
    if (checked.report.valid) details.replaceChildren(timeShares([current], [answer.totals]),
                                                      make("p", {}, criticalPathText(current)));
    else details.replaceChildren();
  }

  function showPanels() {
    const panels = [current, ...finder.panels()];
    if (plot === null) makePlot(panels);
    plotRoot.style.height = `${heightOf(panels)}px`;
    plot.show(panels);
    fillLegend(legend, plot);
  }

  function makePlot(panels) {
    plot = new Plot(plotRoot, panels);
    plot.onRestyle = () => fillLegend(legend, plot);
    plot.onPick = (what) => pick(what !== null && what.panel === current ? placeOf(what.op) : null);
    plot.onDrag = dragOp;
    plot.afterDraw = drawMarks;
    listenToKeys(plotRoot, {...plot.keys(), ArrowLeft: () => walk(0, -1), ArrowRight: () => walk(0, 1),
                            ArrowUp: () => walk(-1, 0), ArrowDown: () => walk(1, 0), Delete: remove, Backspace: remove,
                            Escape: () => pick(null)});
    plotRoot.addEventListener("keydown", (event) => {
      if (!event.shiftKey || !["ArrowLeft", "ArrowRight"].includes(event.key) || picked === null) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      moveOp(picked, picked.position + (event.key === "ArrowLeft" ? -1 : 1));
    }, {capture: true});
    const {picture, view} = plot;
    const box = (label, on, choose) => {
      const made = checkbox(label, on, () => {});
      linkBox(made.firstElementChild, plot, choose);
      return made;
    };
    bar.replaceChildren(box("critical path", true, (on) => picture.show.critical = on),
                        box("messages", false, (on) => picture.show.arrows = on),
                        box("memory", false, (on) => view.memory = on),
                        button("Fit", plot.keys().f),
                        exportMenu(() => ({name: "own"}), () => ({schedule: {text: chosen.text},
                                                                  ...costFields(chosen.costs)}), plot));
    picture.resize();
    view.fit();
  }

  function placeOf(op) {
    const worker = current.workerOf(op);
    return {worker, position: op - current.ops.first[worker]};
  }

  function opAt({worker, position}) {
    return current.ops.first[worker] + position;
  }

  const lengthOf = (worker) => current.ops.first[worker + 1] - current.ops.first[worker];

  function pick(place) {
    picked = place;
    if (place !== null) {
      const {heading, lines} = current.describeOp(opAt(place));
      const {worker, position} = place;
      spoken.textContent = `${heading}, op ${position + 1} of ${lengthOf(worker)} on worker ${worker}; ` +
          lines.slice(2).join("; ");
    } else {
      spoken.textContent = "";
    }
    plot.redraw();
  }

  /** Selects a neighboring op of the worker, or the op nearest in time on a neighboring worker. */
  function walk(workers, ops) {
    if (picked === null) return pick({worker: 0, position: 0});
    const worker = Math.min(Math.max(picked.worker + workers, 0), current.workers - 1);
    if (workers === 0) {
      return pick({worker, position: Math.min(Math.max(picked.position + ops, 0), lengthOf(worker) - 1)});
    }
    const time = current.ops.start[opAt(picked)];
    const {first, start} = current.ops;
    let best = 0;
    for (let i = 0; i < lengthOf(worker); ++i) {
      if (Math.abs(start[first[worker] + i] - time) < Math.abs(start[first[worker] + best] - time)) best = i;
    }
    pick({worker, position: best});
  }

  function moveOp(place, to) {
    if (to < 0 || to >= lengthOf(place.worker) || to === place.position) return;
    const label = current.label(opAt(place));
    picked = {worker: place.worker, position: to};
    setText(withMovedOp(chosen.text, place.worker, place.position, to));
    spoken.textContent = `${label} is now op ${to + 1} of worker ${place.worker}`;
  }

  function remove() {
    if (picked === null) return;
    const place = picked;
    pick(null);
    setText(withoutOp(chosen.text, place.worker, place.position));
  }

  /** Moves an op along its row while the pointer drags it; drops it at the pointer's position. */
  function dragOp(what, event, phase) {
    if (phase === "down") {
      if (what === null || what.op === kNone || what.panel !== current) return false;
      drag = {place: placeOf(what.op), to: null, x: 0};
      return true;
    }
    const [x] = plot.at(event);
    drag.x = x;
    drag.to = targetOf(drag.place, plot.view.timeAt(x));
    if (phase === "up") {
      const {place, to} = drag;
      drag = null;
      moveOp(place, to);
    }
    plot.redraw();
    return true;
  }

  /** Returns the position after all other ops of the row whose middle is before `time`. */
  function targetOf({worker, position}, time) {
    const {first, start, end} = current.ops;
    let to = 0;
    for (let i = 0; i < lengthOf(worker); ++i) {
      const op = first[worker] + i;
      if (i !== position && (start[op] + end[op]) / 2 < time) ++to;
    }
    return to;
  }

  function drawMarks() {
    const {picture} = plot;
    picture.inPlot(picture.base, () => {
      if (current.visited) drawStuck(plot, current, places);
      if (picked !== null && picked.position < lengthOf(picked.worker)) drawPicked(plot, current, opAt(picked));
      if (drag !== null && drag.to !== null) drawDragged(plot, current, opAt(drag.place), drag.x);
    });
  }

  const finder = new Finder({
    request: () => ({schedule: {text: chosen.text}, ...costFields(chosen.costs), ...limitFields()}),
    show: showPanels,
    take: setText,
  });

  const start = make("div", {class: "card"});
  function fillStart() {
    const names = catalog.schedules.map((each) => each.name);
    const refill = () => {
      saveState();
      fillStart();
    };
    start.replaceChildren(
        select("Schedule", names, chosen.start.name, (name) => {
          const {stages, micro_batches} = chosen.start;
          chosen.start = {...usualChoice(name), stages, micro_batches};
          refill();
        }),
        ...parameterFields(chosen.start, saveState),
        row(numberField("D", chosen.start.stages, {least: 1, most: 64, whole: true},
                        (value) => chosen.start.stages = value),
            numberField("N", chosen.start.micro_batches, {least: 1, most: 512, whole: true},
                        (value) => chosen.start.micro_batches = value)),
        button("Start from this schedule", async () => {
          try {
            const schedule = scheduleField(chosen.start, chosen.start.stages, chosen.start.micro_batches);
            const {text: made} = await quickEngine.ask({do: "export", format: "csv", schedule});
            finder.forget();
            pick(null);
            setText(made);
          } catch (error) {
            verdict.className = "verdict bad";
            verdict.replaceChildren(make("b", {}, "No such schedule"), make("p", {}, error.message));
          }
        }));
  }
  fillStart();

  async function convert(format) {
    try {
      setText((await quickEngine.ask({do: "export", format, schedule: {text: chosen.text}})).text);
    } catch (error) {
      spoken.textContent = error.message;
    }
  }
  const load = make("input", {type: "file", accept: ".json,.csv,.txt", class: "hidden", "aria-label": "Load a file"});
  load.addEventListener("change", async () => {
    if (load.files.length > 0) setText(await load.files[0].text());
    load.value = "";
  });
  const undo = () => setText(past.undo(chosen.text), {remember: false});
  const redo = () => setText(past.redo(chosen.text), {remember: false});
  plotRoot.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
    event.preventDefault();
    if (event.shiftKey) redo();
    else undo();
  });
  text.id = "own-text";

  const costs = costControls(chosen.costs, () => {
    saveState();
    latest.request();
  });
  layOut(room, [group("Start from", start),
                group("Search", numberField("Limit of activations in flight", chosen.inFlight, {}, (value) => {
                  chosen.inFlight = value;
                  saveState();
                  latest.request();
                }, "stage units per worker; 0: no limit"), ...finder.controls),
                costs.place],
         [verdict, legend, bar, plotRoot, spoken,
          make("div", {class: "field"}, make("label", {for: "own-text"}, "Schedule, one row per worker"), text,
               make("p", {id: "own-help", class: "hint"},
                    "A cell has stage, letter and micro-batch (2F5), and the replica if there are several (3F2r1). " +
                        "B is a whole backward; I and W are its halves. In the picture, drag an op along its row, or " +
                        "select it with the arrow keys and move it with Shift+arrow. Delete removes it, Ctrl+Z " +
                        "undoes the last change.")),
          row(button("Undo", undo), button("Redo", redo), button("Convert to JSON", () => convert("json")),
              button("Convert to CSV", () => convert("csv")), button("Load a file", () => load.click()), load,
              button("Compare in Schedules", () => rooms.schedules.open({
                choices: [{name: "your schedule", text: chosen.text}], stages: current?.workers ?? 4, microBatches: 8,
                costs: {...chosen.costs}}))),
          details]);
  latest.request();

  return {
    open({text: given, costs: theirs}) {
      Object.assign(chosen.costs, kUsualCosts, theirs);
      costs.build();
      finder.forget();
      picked = null;
      goTo("own");
      setText(given);
    },
  };
}

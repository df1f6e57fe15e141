"use strict";
// The room Editor: a schedule edited as text, by keys and by dragging. Each change is checked, and a search can start
// from it.

function ownRoom(room) {
  const chosen = chosenIn("own", {
    text: "", costs: {...kUsualCosts}, start: {...usualChoice("1f1b"), stages: 3, micro_batches: 4}, inFlight: 0});
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
    order.pick(null);
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
      showVerdict(checked, timed);
      if (timed !== null || checked.panel) showPanel(timed ?? checked, checked);
    } catch (error) {
      verdict.className = "verdict bad";
      verdict.replaceChildren(make("b", {}, "Not a schedule"), make("p", {}, error.message));
    }
    verdict.dataset.milliseconds = (performance.now() - began).toFixed(1);
  }

  function showVerdict(checked, timed) {
    const {report} = checked;
    verdict.className = `verdict ${report.valid ? "good" : "bad"}`;
    verdict.replaceChildren(...verdictParts(checked));
    if (!report.valid) return;
    const {makespan, lower_bound: bound, bubble_ratio: bubble} = timed.totals;
    verdict.append(
        make("p", {}, `Complete and correctly placed; its program cannot deadlock. Makespan ${number(makespan)}, ` +
            `lower bound ${number(bound)}, bubble ratio ${number(bubble)}.`),
        ...report.notes.map((note) => make("p", {}, `Note: ${note.message}`)));
  }

  function showPanel(answer, checked) {
    const panel = new Panel(answer.panel);
    const name = checked.report.name === "csv" ? "your schedule" : checked.report.name;
    panel.title = checked.report.valid ? panel.title.replace(/^csv/, name) : `${name}: ops that run`;
    const first = order.plot === null;
    order.show(panel, checked.report.violations[0]?.places ?? [], checked.visited ?? null);
    if (first) {
      bar.append(exportMenu(() => ({name: "own"}), () => ({schedule: {text: chosen.text},
                                                           ...costFields(chosen.costs)}), order.plot));
    }
    if (checked.report.valid) details.replaceChildren(timeShares([panel], [answer.totals]),
                                                      make("p", {}, criticalPathText(panel)));
    else details.replaceChildren();
  }

  const finder = new Finder({
    request: () => ({schedule: {text: chosen.text}, ...costFields(chosen.costs), ...limitFields()}),
    show: () => order.showPanels(),
    take: setText,
  });
  const order = new OrderPlot({root: plotRoot, legend, bar, spoken, text: () => chosen.text, edit: setText,
                               more: () => finder.panels()});

  /** Replaces the text by the schedule of the form. */
  async function startAgain() {
    try {
      const schedule = scheduleField(chosen.start, chosen.start.stages, chosen.start.micro_batches);
      const {text: made} = await quickEngine.ask({do: "export", format: "csv", schedule});
      finder.forget();
      if (order.current) order.pick(null);
      setText(made, {remember: chosen.text !== ""});
    } catch (error) {
      verdict.className = "verdict bad";
      verdict.replaceChildren(make("b", {}, "No such schedule"), make("p", {}, error.message));
    }
  }

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
        button("Start from this schedule", startAgain));
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
                choices: [{name: "your schedule", text: chosen.text}], stages: order.current?.workers ?? 4,
                microBatches: 8, costs: {...chosen.costs}}))),
          details]);
  if (chosen.text === "") startAgain();
  else latest.request();

  return {
    open({text: given, costs: theirs, start: from}) {
      chosen.start = from ?? chosen.start;
      fillStart();
      Object.assign(chosen.costs, kUsualCosts, theirs);
      costs.build();
      finder.forget();
      order.picked = null;
      goTo("own");
      setText(given);
    },
  };
}

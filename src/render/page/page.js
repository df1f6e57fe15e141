"use strict";
// Puts the page together: table, legend, and what pointer and keys do.

const page = JSON.parse(document.getElementById("data").textContent);
const panels = page.panels.map((raw) => new Panel(raw));
const plot = document.getElementById("plot");
const tip = document.getElementById("tip");
const view = new View(panels);
const picture = new Picture(plot, view);

let scheduled = false;
function redraw() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    picture.draw();
  });
}

function element(name, text, parent, className) {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  parent.append(made);
  return made;
}

/** The table's columns: heading, explanation, text of a panel, and a number where less is better. */
const kColumns = [
  ["makespan", "until the last op ends", (p) => number(p.opsEnd), (p) => p.opsEnd],
  ["with all-reduce", "until all sums of gradients over the copies of each stage, and all updates, have ended",
   (p) => p.totals.withAllReduce === null ? "–" : number(p.totals.withAllReduce), (p) => p.totals.withAllReduce],
  ["lower bound", "no order of these ops on these workers is faster", (p) => number(p.lowerBound)],
  ["bubble ratio", "idle time of all workers / (workers × makespan)", (p) => number(p.bubbleRatio)],
  ["weight copies", "most weights on one worker, in shares of one copy of the model",
   (p) => number(p.totals.weightCopies)],
  ["peak activations", "most activations held by one worker, in those of one micro-batch on a worker's whole share",
   (p) => `${number(p.totals.peakUnits)} units`],
  ["messages", "between workers, in one step", (p) => p.totals.messages.toLocaleString("en")],
  ["message volume", "all messages of one step", (p) => p.totals.messageVolume],
  ["all-reduce volume", "what all workers send to sum the gradients of one step", (p) => p.totals.allReduceVolume],
];

function fillTable() {
  const table = document.getElementById("totals");
  const head = element("tr", "", element("thead", "", table));
  element("th", "", head);
  for (const [name, meaning] of kColumns) element("th", name, head).title = meaning;
  const body = element("tbody", "", table);
  for (const panel of panels) {
    const row = element("tr", "", body);
    element("td", panel.title, row);
    for (const [, , text, value] of kColumns) {
      const cell = element("td", text(panel), row);
      if (!value || panel === panels[0] || !value(panel) || !value(panels[0])) continue;
      const change = (value(panel) / value(panels[0]) - 1) * 100;
      element("span", ` ${change > 0 ? "+" : ""}${change.toFixed(1)} %`, cell, change > 0 ? "worse" : "better").title =
          `compared with ${panels[0].title}`;
    }
  }
}

function legendEntry(name, paint) {
  const entry = element("span", "", document.getElementById("legend"));
  const canvas = element("canvas", "", entry);
  canvas.width = 26;
  canvas.height = 14;
  paint(canvas.getContext("2d"));
  element("span", name, entry);
}

function fillLegend() {
  document.getElementById("legend").replaceChildren();
  const swatch = (...fills) => (context) => {
    for (const fill of fills) {
      context.fillStyle = fill;
      context.fillRect(0, 0, 26, 14);
    }
  };
  const used = (member, column) => panels.some((panel) => panel[member][column].length > 0);
  kKinds.forEach((name, kind) => {
    if (panels.some((panel) => panel.ops.kind.includes(kind))) {
      legendEntry(`${kLetters[kind]} ${name}`, swatch(panels[0].fills[kind][0]));
    }
  });
  const several = panels.find((panel) => panel.replicas.length > 1);
  several?.replicas.forEach((replica, r) => {
    const fills = several.fills.slice(0, 1).map((shades) => shades[r]);
    legendEntry(`replica ${r}${replica.name ? ` (${replica.name})` : ""}`,
                swatch(...fills, ...(replica.hatched ? [picture.theme.replica] : [])));
  });
  if (used("allReduces", "stage")) legendEntry("all-reduce", swatch(page.allReduceColor));
  if (used("updates", "start")) legendEntry("optimizer step", swatch(page.updateColor));
  page.causes.forEach((cause, c) => {
    if (panels.some((panel) => panel.bubbles.cause.includes(c))) {
      legendEntry(`idle: ${cause.name}`, swatch(picture.theme.causes[c].hatched));
    }
  });
  const remembered = panels.find((panel) => panel.hasMemory);
  if (remembered) {
    legendEntry(`memory, full height ${remembered.amount(view.mostMemory(remembered))}`, swatch(picture.theme.memory));
  }
}

/** What stands at a point of the plot: {panel, heading, lines, op}, or null. */
function whatIsAt(x, y) {
  const row = x >= view.left ? view.rowAt(y) : null;
  if (row === null) return null;
  const {panel, worker, offset} = row;
  const time = view.timeAt(x);
  const {ops: opsHeight, allReduce} = lanes(panel, view);
  const memory = panel.hasMemory ? [`memory ${panel.amount(panel.memoryAt(worker, time))}`] : [];
  if (offset >= opsHeight && offset < opsHeight + allReduce) {
    const sum = panel.spanAt(panel.allReduces, worker, time);
    if (sum !== kNone) {
      const {stage, start, end} = panel.allReduces;
      const lines = [`worker ${worker}, ${number(start[sum])} to ${number(end[sum])}`];
      return {panel, op: kNone, heading: `all-reduce of stage ${stage[sum]}'s gradients`, lines};
    }
  }
  if (offset > opsHeight + allReduce && memory.length > 0) {
    return {panel, op: kNone, heading: memory[0], lines: [`worker ${worker} at ${number(time)}`]};
  }
  const update = panel.spanAt(panel.updates, worker, time);
  if (update !== kNone) {
    const {start, end} = panel.updates;
    const lines = [`worker ${worker}, ${number(start[update])} to ${number(end[update])}`, ...memory];
    return {panel, op: kNone, heading: "optimizer step", lines};
  }
  const op = panel.spanAt(panel.ops, worker, time);
  if (op !== kNone) {
    const {heading, lines} = panel.describeOp(op);
    return {panel, op, heading, lines: [...lines, ...memory]};
  }
  const bubble = panel.spanAt(panel.bubbles, worker, time);
  if (bubble === kNone) return null;
  const {start, end} = panel.bubbles;
  const span = `worker ${worker}, ${number(start[bubble])} to ${number(end[bubble])}`;
  return {panel, op: kNone, heading: "bubble", lines: [span, panel.describeBubble(bubble), ...memory]};
}

function hover(x, y) {
  const found = whatIsAt(x, y);
  tip.hidden = found === null;
  picture.highlight(found !== null && found.op !== kNone ? found.panel : null, found?.op);
  if (found === null) return;
  tip.replaceChildren();
  element("b", found.heading, tip);
  for (const line of found.lines) element("div", line, tip);
  const right = x + 16 + tip.offsetWidth < view.width ? x + 16 : Math.max(0, x - tip.offsetWidth - 12);
  const below = y + 16 + tip.offsetHeight < view.height ? y + 16 : Math.max(0, y - tip.offsetHeight - 12);
  tip.style.left = `${right}px`;
  tip.style.top = `${below}px`;
}

function endHover() {
  tip.hidden = true;
  picture.highlight(null);
}

function pin(microBatch) {
  view.pinned = microBatch;
  redraw();
}

function listenToPointer() {
  let drag = null;
  const at = (event) => {
    const bounds = plot.getBoundingClientRect();
    return [event.clientX - bounds.left, event.clientY - bounds.top];
  };
  plot.addEventListener("pointerdown", (event) => {
    drag = {x: event.clientX, y: event.clientY, moved: false};
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    if (drag === null) return hover(...at(event));
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag = {x: event.clientX, y: event.clientY, moved: true};
    plot.classList.add("dragging");
    endHover();
    view.pan(dx, dy);
    redraw();
  });
  plot.addEventListener("pointerup", (event) => {
    plot.classList.remove("dragging");
    if (drag !== null && !drag.moved) {
      const found = whatIsAt(...at(event));
      pin(found !== null && found.op !== kNone ? found.panel.ops.microBatch[found.op] : null);
    }
    drag = null;
  });
  plot.addEventListener("pointercancel", () => drag = null);
  plot.addEventListener("pointerleave", endHover);
  plot.addEventListener("wheel", (event) => {
    event.preventDefault();
    endHover();
    const [x, y] = at(event);
    const factor = Math.exp(-event.deltaY * 0.002);
    if (event.ctrlKey) view.zoomRows(factor, y);
    else if (event.shiftKey || event.deltaX !== 0) view.pan(-event.deltaX, -event.deltaY);
    else view.zoom(factor, Math.max(x, view.left));
    redraw();
  }, {passive: false});
}

function listenToControls() {
  const act = (change) => () => {
    change();
    endHover();
    redraw();
  };
  const byId = (id) => document.getElementById(id);
  const middle = () => view.left + view.plotWidth / 2;
  for (const id of ["critical", "arrows"]) byId(id).onchange = act(() => picture.show[id] = byId(id).checked);
  byId("memory").onchange = act(() => view.memory = byId("memory").checked);
  const keys = {
    "f": act(() => view.fit()),
    "[": act(() => view.zoomRows(1 / 1.25, kAxisHeight)),
    "]": act(() => view.zoomRows(1.25, kAxisHeight)),
    "+": act(() => view.zoom(1.4, middle())),
    "=": act(() => view.zoom(1.4, middle())),
    "-": act(() => view.zoom(1 / 1.4, middle())),
    "c": () => byId("critical").click(),
    "a": () => byId("arrows").click(),
    "m": () => byId("memory").click(),
    "ArrowLeft": act(() => view.pan(80, 0)),
    "ArrowRight": act(() => view.pan(-80, 0)),
    "ArrowUp": act(() => view.pan(0, 60)),
    "ArrowDown": act(() => view.pan(0, -60)),
    "Escape": () => pin(null),
  };
  byId("fit").onclick = keys.f;
  byId("lower").onclick = keys["["];
  byId("higher").onclick = keys["]"];
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
}

function start() {
  fillTable();
  fillLegend();
  listenToPointer();
  listenToControls();
  picture.resize();
  view.fit();
  redraw();
  new ResizeObserver(() => {
    picture.resize();
    if (view.fitted) view.fit();
    picture.draw();
  }).observe(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    picture.restyle();
    fillLegend();
    redraw();
  });
}

start();

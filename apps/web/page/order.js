"use strict";
// A picture of a schedule whose ops can be moved along their rows, by keys and by dragging. The editor and the lessons
// share it.

class OrderPlot {
  /** `text()` returns the schedule's text, and `edit(text)` replaces it. `more()` returns panels to draw below. */
  constructor({root, legend, bar, spoken, text, edit, more = () => []}) {
    Object.assign(this, {root, legend, bar, spoken, text, edit, more});
    this.plot = null;
    this.current = null;  // the panel of the text
    this.picked = null;   // {worker, position}
    this.places = [];     // ops of the counterexample
    this.drag = null;
  }

  /** Draws the panel of the text. `places` and `visited` are of an invalid schedule. */
  show(panel, places = [], visited = null) {
    this.current = panel;
    this.current.visited = visited;
    this.places = places;
    this.showPanels();
  }

  showPanels() {
    const panels = [this.current, ...this.more()];
    if (this.plot === null) this.makePlot(panels);
    this.root.style.height = `${heightOf(panels)}px`;
    this.plot.show(panels);
    fillLegend(this.legend, this.plot);
  }

  makePlot(panels) {
    this.plot = new Plot(this.root, panels);
    this.plot.onRestyle = () => fillLegend(this.legend, this.plot);
    this.plot.onPick = (what) => this.pick(
        what !== null && what.panel === this.current ? this.placeOf(what.op) : null);
    this.plot.onDrag = (...what) => this.dragOp(...what);
    this.plot.afterDraw = () => this.drawMarks();
    const {picture, view} = this.plot;
    listenToKeys(this.root, {
      ...this.plot.keys(), ArrowLeft: () => this.walk(0, -1), ArrowRight: () => this.walk(0, 1),
      ArrowUp: () => this.walk(-1, 0), ArrowDown: () => this.walk(1, 0), Delete: () => this.remove(),
      Backspace: () => this.remove(), Escape: () => this.pick(null)});
    this.root.addEventListener("keydown", (event) => {
      if (!event.shiftKey || !["ArrowLeft", "ArrowRight"].includes(event.key) || this.picked === null) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      this.moveOp(this.picked, this.picked.position + (event.key === "ArrowLeft" ? -1 : 1));
    }, {capture: true});
    const box = (label, on, choose) => {
      const made = checkbox(label, on, () => {});
      linkBox(made.firstElementChild, this.plot, choose);
      return made;
    };
    this.bar.replaceChildren(box("critical path", true, (on) => picture.show.critical = on),
                             box("messages", false, (on) => picture.show.arrows = on),
                             box("memory", false, (on) => view.memory = on),
                             button("Fit", this.plot.keys().f));
    picture.resize();
    view.fit();
  }

  placeOf(op) {
    const worker = this.current.workerOf(op);
    return {worker, position: op - this.current.ops.first[worker]};
  }

  opAt({worker, position}) {
    return this.current.ops.first[worker] + position;
  }

  lengthOf(worker) {
    return this.current.ops.first[worker + 1] - this.current.ops.first[worker];
  }

  pick(place) {
    this.picked = place;
    if (place !== null) {
      const {heading, lines} = this.current.describeOp(this.opAt(place));
      const {worker, position} = place;
      this.spoken.textContent = `${heading}, op ${position + 1} of ${this.lengthOf(worker)} on worker ${worker}; ` +
          lines.slice(2).join("; ");
    } else {
      this.spoken.textContent = "";
    }
    this.plot?.redraw();
  }

  /** Selects a neighboring op of the worker, or the op nearest in time on a neighboring worker that has ops. */
  walk(workers, ops) {
    const {first, start} = this.current.ops;
    const from = this.picked ?? {worker: -1, position: 0};
    let worker = from.worker;
    do worker += this.picked === null ? 1 : workers;
    while (worker >= 0 && worker < this.current.workers && this.lengthOf(worker) === 0);
    if (worker < 0 || worker >= this.current.workers) return;
    if (this.picked === null) return this.pick({worker, position: 0});
    if (workers === 0) {
      return this.pick({worker, position: Math.min(Math.max(from.position + ops, 0), this.lengthOf(worker) - 1)});
    }
    const time = start[this.opAt(from)];
    let best = 0;
    for (let i = 0; i < this.lengthOf(worker); ++i) {
      if (Math.abs(start[first[worker] + i] - time) < Math.abs(start[first[worker] + best] - time)) best = i;
    }
    this.pick({worker, position: best});
  }

  moveOp(place, to) {
    if (to < 0 || to >= this.lengthOf(place.worker) || to === place.position) return;
    const label = this.current.label(this.opAt(place));
    this.picked = {worker: place.worker, position: to};
    this.edit(withMovedOp(this.text(), place.worker, place.position, to));
    this.spoken.textContent = `${label} is now op ${to + 1} of worker ${place.worker}`;
  }

  remove() {
    if (this.picked === null) return;
    const place = this.picked;
    this.pick(null);
    this.edit(withoutOp(this.text(), place.worker, place.position));
  }

  /** Moves an op along its row while the pointer drags it; drops it at the pointer's position. */
  dragOp(what, event, phase) {
    if (phase === "down") {
      if (what === null || what.op === kNone || what.panel !== this.current) return false;
      this.drag = {place: this.placeOf(what.op), to: null, x: 0};
      return true;
    }
    const [x] = this.plot.at(event);
    this.drag.x = x;
    this.drag.to = this.targetOf(this.drag.place, this.plot.view.timeAt(x));
    if (phase === "up") {
      const {place, to} = this.drag;
      this.drag = null;
      this.moveOp(place, to);
    }
    this.plot.redraw();
    return true;
  }

  /** Returns the position after all other ops of the row whose middle is before `time`. */
  targetOf({worker, position}, time) {
    const {first, start, end} = this.current.ops;
    let to = 0;
    for (let i = 0; i < this.lengthOf(worker); ++i) {
      const op = first[worker] + i;
      if (i !== position && (start[op] + end[op]) / 2 < time) ++to;
    }
    return to;
  }

  drawMarks() {
    const {plot, current, picked, drag} = this;
    plot.picture.inPlot(plot.picture.base, () => {
      if (current.visited) drawStuck(plot, current, this.places);
      if (picked !== null && picked.position < this.lengthOf(picked.worker)) {
        drawPicked(plot, current, this.opAt(picked));
      }
      if (drag !== null && drag.to !== null) drawDragged(plot, current, this.opAt(drag.place), drag.x);
    });
  }
}

/** Returns a plot height with readable rows that does not exceed the window. */
function heightOf(panels) {
  const rows = panels.reduce((sum, panel) => sum + panel.workers, 0);
  const wanted = kAxisHeight + panels.length * (kTitleHeight + kPanelGap) + rows * 38;
  return Math.round(Math.max(220, Math.min(wanted, innerHeight * 0.78)));
}

/** Describes a check: valid or why not, with the excerpts of the first errors. */
function verdictParts({report, excerpts}) {
  if (report.valid) return [make("b", {}, "Valid")];
  const count = report.violations.length;
  return [
    make("b", {}, count === 1 ? "Not valid" : `Not valid: ${count} errors`),
    ...report.violations.slice(0, 4).flatMap((violation, i) => [
      make("p", {}, violation.message.split("; ").map((part) => make("span", {class: "link"}, part))),
      make("pre", {}, excerpts[i])]),
    ...count > 4 ? [make("p", {}, `and ${count - 4} more`)] : []];
}

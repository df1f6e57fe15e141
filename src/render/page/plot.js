"use strict";
// A plot: panels on canvases, controlled by pointer, wheel and keys.

/** `root` contains the canvases .picture and .overlay, and the tooltip .tip. */
class Plot {
  constructor(root, panels) {
    this.root = root;
    this.tip = root.querySelector(".tip");
    this.view = new View(panels);
    this.picture = new Picture(root, this.view);
    this.scheduled = false;
    this.onPick = (found) => this.pin(found === null ? null : found.panel.ops.microBatch[found.op]);
    this.onRestyle = () => {};
    this.afterDraw = () => {};
    this.onDrag = null;  // (what was under the pointer, event, phase): takes the drag if it returns true
    this.listenToPointer();
    this.listenToSystem();
  }

  /** Shows other panels; a chosen time range stays. */
  show(panels) {
    const {startTime, scale, rowHeight, top, fitted} = this.view;
    this.view.setPanels(panels);
    if (fitted) this.view.fit();
    else Object.assign(this.view, {startTime, scale, rowHeight, top});
    this.view.keepInSight();
    this.endHover();
    this.redraw();
  }

  redraw() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.draw();
    });
  }

  draw() {
    this.picture.draw();
    this.afterDraw(this);
  }

  /** Returns the content at a point of the plot: {panel, worker, heading, lines, op}, or null. */
  whatIsAt(x, y) {
    const {view} = this;
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
        return {panel, worker, op: kNone, heading: `all-reduce of stage ${stage[sum]}'s gradients`, lines};
      }
    }
    if (offset > opsHeight + allReduce && memory.length > 0) {
      return {panel, worker, op: kNone, heading: memory[0], lines: [`worker ${worker} at ${number(time)}`]};
    }
    const update = panel.spanAt(panel.updates, worker, time);
    if (update !== kNone) {
      const {start, end} = panel.updates;
      const lines = [`worker ${worker}, ${number(start[update])} to ${number(end[update])}`, ...memory];
      return {panel, worker, op: kNone, heading: "optimizer step", lines};
    }
    const first = panel.spanAt(panel.ops, worker, time);
    if (first !== kNone) {
      const op = panel.laneOf(first).share < 1 && offset >= opsHeight / 2 ? first + 1 : first;
      const {heading, lines} = panel.describeOp(op);
      return {panel, worker, op, heading, lines: [...lines, ...memory]};
    }
    const bubble = panel.spanAt(panel.bubbles, worker, time);
    if (bubble === kNone) return null;
    const {start, end} = panel.bubbles;
    const span = `worker ${worker}, ${number(start[bubble])} to ${number(end[bubble])}`;
    return {panel, worker, op: kNone, heading: "bubble", lines: [span, panel.describeBubble(bubble), ...memory]};
  }

  hover(x, y) {
    const {tip, view} = this;
    const found = this.whatIsAt(x, y);
    tip.hidden = found === null;
    this.picture.highlight(found !== null && found.op !== kNone ? found.panel : null, found?.op);
    if (found === null) return;
    tip.replaceChildren();
    element("b", found.heading, tip);
    for (const line of found.lines) element("div", line, tip);
    const right = x + 16 + tip.offsetWidth < view.width ? x + 16 : Math.max(0, x - tip.offsetWidth - 12);
    const below = y + 16 + tip.offsetHeight < view.height ? y + 16 : Math.max(0, y - tip.offsetHeight - 12);
    tip.style.left = `${right}px`;
    tip.style.top = `${below}px`;
  }

  endHover() {
    this.tip.hidden = true;
    this.picture.highlight(null);
  }

  pin(microBatch) {
    this.view.pinned = microBatch;
    this.redraw();
  }

  at(event) {
    const bounds = this.root.getBoundingClientRect();
    return [event.clientX - bounds.left, event.clientY - bounds.top];
  }

  listenToPointer() {
    const {root, view} = this;
    let drag = null;
    root.addEventListener("pointerdown", (event) => {
      const taken = this.onDrag?.(this.whatIsAt(...this.at(event)), event, "down") ?? false;
      drag = {x: event.clientX, y: event.clientY, moved: false, taken};
      root.setPointerCapture(event.pointerId);
    });
    root.addEventListener("pointermove", (event) => {
      if (drag === null) return this.hover(...this.at(event));
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (!drag.moved && Math.hypot(dx, dy) < 4) return;
      this.endHover();
      if (drag.taken) {
        drag.moved = true;
        this.onDrag(null, event, "move");
        return;
      }
      drag = {x: event.clientX, y: event.clientY, moved: true, taken: false};
      root.classList.add("dragging");
      view.pan(dx, dy);
      this.redraw();
    });
    root.addEventListener("pointerup", (event) => {
      root.classList.remove("dragging");
      if (drag !== null && !drag.moved) {
        const found = this.whatIsAt(...this.at(event));
        this.onPick(found !== null && found.op !== kNone ? found : null);
      } else if (drag?.taken) {
        this.onDrag(null, event, "up");
      }
      drag = null;
    });
    root.addEventListener("pointercancel", () => drag = null);
    root.addEventListener("pointerleave", () => this.endHover());
    root.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.endHover();
      const [x, y] = this.at(event);
      const factor = Math.exp(-event.deltaY * 0.002);
      if (event.ctrlKey) view.zoomRows(factor, y);
      else if (event.shiftKey || event.deltaX !== 0) view.pan(-event.deltaX, -event.deltaY);
      else view.zoom(factor, Math.max(x, view.left));
      this.redraw();
    }, {passive: false});
  }

  /** Handles keys; each redraws. */
  keys() {
    const {view} = this;
    const act = (change) => () => {
      change();
      this.endHover();
      this.redraw();
    };
    const middle = () => view.left + view.plotWidth / 2;
    return {
      "f": act(() => view.fit()),
      "[": act(() => view.zoomRows(1 / 1.25, kAxisHeight)),
      "]": act(() => view.zoomRows(1.25, kAxisHeight)),
      "+": act(() => view.zoom(1.4, middle())),
      "=": act(() => view.zoom(1.4, middle())),
      "-": act(() => view.zoom(1 / 1.4, middle())),
      "ArrowLeft": act(() => view.pan(80, 0)),
      "ArrowRight": act(() => view.pan(-80, 0)),
      "ArrowUp": act(() => view.pan(0, 60)),
      "ArrowDown": act(() => view.pan(0, -60)),
      "Escape": () => this.pin(null),
    };
  }

  /** Applies the window's size and the system's theme. */
  listenToSystem() {
    new ResizeObserver(() => {
      this.picture.resize();
      if (this.view.fitted) this.view.fit();
      this.draw();
    }).observe(this.root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.picture.restyle();
      this.onRestyle();
      this.redraw();
    });
  }
}

/** Handles keys pressed without modifiers. */
function listenToKeys(target, keys) {
  target.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
}

/** Connects a checkbox to a visibility option. */
function linkBox(box, plot, choose) {
  const take = () => {
    choose(box.checked);
    plot.endHover();
    plot.onRestyle();
    plot.redraw();
  };
  box.addEventListener("change", take);
  choose(box.checked);
}

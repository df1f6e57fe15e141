"use strict";
// Follows one micro-batch through the plot: a moving line marks the time, and the current ops are outlined. There is no
// animation if the system asks for reduced motion.

class Follower {
  constructor(plot) {
    this.plot = plot;
    this.time = null;  // null: no micro-batch is followed
    this.running = null;
    this.microBatch = numberInput(0, {whole: true}, (value) => this.choose(value));
    this.slider = make("input", {type: "range", min: 0, max: 1000, step: 1, value: 0, "aria-label": "time"});
    this.slider.addEventListener("input", () => this.moveTo(this.slider.valueAsNumber / 1000 * plot.view.longest));
    this.play = button("Play", () => this.running === null ? this.run() : this.pause());
    this.said = make("span", {role: "status", class: "said"});
    this.place = group("Follow a micro-batch",
                       make("div", {class: "row narrow"}, labeled("Micro-batch", this.microBatch), this.play,
                           button("Next op", () => this.step()), button("Stop following", () => this.letGo())),
                       this.slider, this.said);
    plot.afterDraw = () => this.draw();
    const calm = matchMedia("(prefers-reduced-motion: reduce)");
    const obey = () => {
      this.play.hidden = calm.matches;
      this.pause();
    };
    calm.addEventListener("change", obey);
    obey();
  }

  choose(microBatch) {
    this.plot.pin(microBatch);
    this.moveTo(this.time ?? 0);
  }

  moveTo(time) {
    this.time = time;
    this.plot.view.pinned ??= this.microBatch.valueAsNumber || 0;
    this.slider.value = 1000 * time / this.plot.view.longest;
    this.tell();
    this.plot.redraw();
  }

  /** Returns the ops of the micro-batch that run at the current time, in all panels. */
  active() {
    const {panels, pinned} = this.plot.view;
    return panels.flatMap((panel) => {
      const {microBatch, start, end} = panel.ops;
      return [...microBatch.keys()].filter(
          (op) => microBatch[op] === pinned && start[op] <= this.time && this.time < end[op]).map((op) => [panel, op]);
    });
  }

  tell() {
    const active = new Set(this.active().map(([panel, op]) => panel.place(op)));
    this.said.textContent = `time ${number(this.time)}: ${[...active].join(", ") || "in transit or waiting"}`;
  }

  step() {
    const {panels, pinned} = this.plot.view;
    const shown = pinned ?? (this.microBatch.valueAsNumber || 0);
    const starts = panels.flatMap(({ops}) => [...ops.start].filter((_, op) => ops.microBatch[op] === shown));
    const later = starts.filter((start) => start > (this.time ?? -1) + 1e-6);
    this.moveTo(later.length > 0 ? Math.min(...later) : 0);
  }

  run() {
    const {view} = this.plot;
    if (this.time === null || this.time >= view.longest) this.time = 0;
    const seconds = 10;
    let before = performance.now();
    this.play.textContent = "Pause";
    const tick = (now) => {
      const time = this.time + (now - before) / 1000 / seconds * view.longest;
      before = now;
      this.moveTo(Math.min(time, view.longest));
      this.running = time < view.longest ? requestAnimationFrame(tick) : null;
      if (this.running === null) this.pause();
    };
    this.running = requestAnimationFrame(tick);
  }

  pause() {
    if (this.running !== null) cancelAnimationFrame(this.running);
    this.running = null;
    this.play.textContent = "Play";
  }

  letGo() {
    this.pause();
    this.time = null;
    this.said.textContent = "";
    this.plot.pin(null);
  }

  draw() {
    if (this.time === null) return;
    const {view, picture} = this.plot;
    const {base: context, theme} = picture;
    const x = view.x(this.time);
    picture.inPlot(context, () => {
      context.strokeStyle = theme.mark;
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(x, kAxisHeight);
      context.lineTo(x, view.height);
      context.stroke();
      for (const [panel, op] of this.active()) {
        const box = boxOf(view, panel, op);
        context.lineWidth = 3;
        context.strokeRect(box.left, box.top, Math.max(3, box.right - box.left - 1), box.height);
      }
    });
  }
}

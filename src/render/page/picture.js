"use strict";
// The two canvases: the schedules, and an overlay that follows the pointer.

/** Center and edges of an op's box. */
function boxOf(view, panel, op) {
  const row = lanes(panel, view).ops;
  const lane = panel.laneOf(op);
  const y = view.yOf(panel, panel.workerOf(op)) + lane.from * row;
  const height = lane.share * row;
  return {left: view.x(panel.ops.start[op]), right: view.x(panel.ops.end[op]), top: y, height, middle: y + height / 2};
}

function arrow(context, x0, y0, x1, y1) {
  const angle = Math.atan2(y1 - y0, x1 - x0);
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.moveTo(x1 - 6 * Math.cos(angle - 0.45), y1 - 6 * Math.sin(angle - 0.45));
  context.lineTo(x1, y1);
  context.lineTo(x1 - 6 * Math.cos(angle + 0.45), y1 - 6 * Math.sin(angle + 0.45));
  context.stroke();
}

class Picture {
  constructor(plot, view) {
    this.plot = plot;
    this.view = view;
    this.base = plot.querySelector(".picture").getContext("2d");
    this.over = plot.querySelector(".overlay").getContext("2d");
    this.show = {critical: true, arrows: false};
    this.restyle();
  }

  restyle() {
    this.theme = makeTheme(this.base);
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const {clientWidth: width, clientHeight: height} = this.plot;
    for (const context of [this.base, this.over]) {
      context.canvas.width = Math.round(width * ratio);
      context.canvas.height = Math.round(height * ratio);
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.view.resize(width, height);
  }

  draw() {
    const {base: context, view, theme} = this;
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, view.width, view.height);
    this.inPlot(context, () => view.eachPanel((panel, y) => this.drawRows(panel, y + kTitleHeight)));
    view.eachPanel((panel, y) => this.drawNames(panel, y));
    this.drawAxis();
  }

  /** Draws clipped to the rows' part of the canvas. */
  inPlot(context, paint) {
    context.save();
    context.beginPath();
    context.rect(this.view.left, kAxisHeight, this.view.plotWidth, this.view.height);
    context.clip();
    paint();
    context.restore();
  }

  drawRows(panel, top) {
    const {view, base: context} = this;
    const painter = new Painter(context, this.theme, view);
    for (let worker = 0; worker < panel.workers; ++worker) {
      const y = top + worker * view.rowHeight;
      if (y + view.rowHeight > kAxisHeight && y < view.height) painter.row(panel, worker, y);
    }
    this.drawEnd(panel, top);
    if (this.show.critical && view.pinned === null) this.drawCriticalPath(panel);
    if (this.show.arrows || view.pinned !== null) this.drawMessages(panel);
  }

  /** Draws a line at the makespan and a dashed line at the lower bound. */
  drawEnd(panel, top) {
    const {view, base: context} = this;
    const bottom = top + panel.workers * view.rowHeight;
    context.strokeStyle = this.theme.ink;
    context.lineWidth = 1;
    for (const [time, dashes] of [[panel.makespan, []], [panel.lowerBound, [3, 3]]]) {
      if (dashes.length > 0 && time >= panel.makespan) continue;
      context.setLineDash(dashes);
      context.beginPath();
      context.moveTo(view.x(time), top - 4);
      context.lineTo(view.x(time), bottom);
      context.stroke();
    }
    context.setLineDash([]);
  }

  drawCriticalPath(panel) {
    const {view, base: context} = this;
    context.strokeStyle = this.theme.mark;
    context.lineWidth = 2;
    let before = null;
    for (const op of panel.criticalPath) {
      const box = boxOf(view, panel, op);
      const visible = box.right > view.left && box.left < view.width;
      if (visible && box.right - box.left >= 5) {
        context.strokeRect(box.left + 1, box.top + 1, box.right - box.left - 3, box.height - 2);
      } else if (visible) {
        context.fillStyle = this.theme.mark;
        context.fillRect(box.left, box.middle - 1, Math.max(1, box.right - box.left), 2);
      }
      if (before !== null && before.top !== box.top && visible) this.link(before, box);
      before = box;
    }
  }

  link(from, to) {
    const down = to.top > from.top;
    this.base.beginPath();
    this.base.moveTo(from.right - 2, down ? from.top + from.height : from.top);
    this.base.lineTo(to.left + 2, down ? to.top : to.top + to.height);
    this.base.stroke();
  }

  /** Draws messages in view (of the pinned micro-batch, if any), unless they are too dense. */
  drawMessages(panel) {
    const {view, base: context} = this;
    const {from, to, sent, arrived} = panel.messages;
    const inView = [];
    for (let m = 0; m < from.length && inView.length <= 2000; ++m) {
      if (view.pinned !== null && view.pinned !== panel.ops.microBatch[from[m]]) continue;
      if (arrived[m] >= view.startTime && sent[m] <= view.endTime) inView.push(m);
    }
    if (inView.length > 2000) return;
    context.strokeStyle = this.theme.faint;
    context.lineWidth = 1;
    for (const m of inView) {
      arrow(context, view.x(sent[m]), boxOf(view, panel, from[m]).middle, view.x(arrived[m]) + 3,
            boxOf(view, panel, to[m]).middle);
    }
  }

  drawNames(panel, y) {
    const {view, base: context, theme} = this;
    if (y + kTitleHeight > kAxisHeight && y < view.height) {
      context.fillStyle = theme.ink;
      context.textAlign = "left";
      context.textBaseline = "middle";
      context.font = 'bold 13px system-ui, "DejaVu Sans", sans-serif';
      context.fillText(panel.title, 8, y + kTitleHeight / 2 + 2);
    }
    const every = Math.ceil(11 / view.rowHeight);
    context.font = `${Math.min(12, Math.max(9, view.rowHeight - 2))}px system-ui, "DejaVu Sans", sans-serif`;
    context.textAlign = "right";
    context.fillStyle = theme.faint;
    const height = lanes(panel, view).ops;
    for (let worker = 0; worker < panel.workers; worker += every) {
      const middle = y + kTitleHeight + worker * view.rowHeight + height / 2;
      if (middle <= kAxisHeight || middle >= view.height) continue;
      context.fillText(`worker ${worker}`, view.left - 8, middle);
      if (panel.lost.includes(worker)) context.fillText("lost", view.left + 32, middle);
    }
  }

  drawAxis() {
    const {view, base: context, theme} = this;
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, view.width, kAxisHeight);
    context.strokeStyle = theme.rule;
    context.lineWidth = 1;
    context.fillStyle = theme.faint;
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillText("time", view.left - 8, 12);
    context.textAlign = "center";
    for (const time of view.ticks()) {
      const x = view.x(time);
      if (x < view.left) continue;
      context.fillText(number(time), x, 12);
      context.beginPath();
      context.moveTo(x, 20);
      context.lineTo(x, kAxisHeight);
      context.stroke();
    }
  }

  /** Marks an op, its inputs and its consumers; or clears the marks. */
  highlight(panel, op) {
    const {over: context, view} = this;
    context.clearRect(0, 0, view.width, view.height);
    if (panel === null) return;
    this.inPlot(context, () => {
      context.strokeStyle = this.theme.mark;
      context.lineWidth = 2;
      this.outline(panel, op);
      for (const message of [panel.messageTo[op], panel.messageFrom[op]]) {
        if (message === kNone) continue;
        const {from, to} = panel.messages;
        const start = boxOf(view, panel, from[message]);
        const end = boxOf(view, panel, to[message]);
        this.outline(panel, from[message]);
        this.outline(panel, to[message]);
        arrow(context, start.right - 2, start.middle, end.left + 2, end.middle);
      }
    });
  }

  outline(panel, op) {
    const box = boxOf(this.view, panel, op);
    this.over.strokeRect(box.left, box.top, Math.max(2, box.right - box.left - 1), box.height);
  }
}

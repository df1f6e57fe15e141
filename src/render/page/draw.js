"use strict";
// Draws panels on a canvas. If ops are narrower than a pixel, a column of pixels shows the share of each kind of op and
// of each cause of idle time, so that the zoomed-out picture shows utilization without moiré.

/** A repeating fill of thin lines; `tile` is an SVG path in 8 x 8 pixels, the same that the SVG pictures use. */
function hatch(context, tile, line, ground) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 8;
  const pen = canvas.getContext("2d");
  if (ground) {
    pen.fillStyle = ground;
    pen.fillRect(0, 0, 8, 8);
  }
  pen.strokeStyle = line;
  pen.stroke(new Path2D(tile));
  return context.createPattern(canvas, "repeat");
}

const kLittleEndian = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

/** Converts a color (#rrggbb) to a pixel of ImageData's buffer. */
function pixelOf(color) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return kLittleEndian ? (0xff000000 | blue << 16 | green << 8 | red) >>> 0
                       : (red << 24 | green << 16 | blue << 8 | 0xff) >>> 0;
}

/** Colors and hatches of the system's theme. */
function makeTheme(context) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const style = getComputedStyle(document.documentElement);
  const theme = {dark};
  for (const name of ["paper", "ink", "faint", "rule", "lane", "mark", "memory"]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  theme.causes = page.causes.map((cause) => {
    const ground = dark ? cause.dark : cause.light;
    return {solid: ground, hatched: hatch(context, cause.tile, theme.faint, ground)};
  });
  theme.strip = document.createElement("canvas");  // buffer for rows of pixels
  theme.replica = hatch(context, page.replicaTile, "#0000003a", null);
  return theme;
}

/** Heights of the lanes of one worker's row: ops, all-reduces, memory. */
function lanes(panel, view) {
  const room = view.rowHeight - Math.min(4, view.rowHeight * 0.2);
  const allReduce = panel.hasAllReduces ? room * 0.18 : 0;
  const memory = panel.hasMemory && view.memory ? room * 0.3 : 0;
  return {ops: room - allReduce - memory, allReduce, memory};
}

class Painter {
  constructor(context, theme, view) {
    Object.assign(this, {context, theme, view});
  }

  row(panel, worker, y) {
    const {ops, allReduce, memory} = lanes(panel, this.view);
    this.context.fillStyle = this.theme.lane;
    this.context.fillRect(this.view.x(0), y, panel.makespan * this.view.scale, ops);
    const range = this.visible(panel.ops, worker);
    const crowded = (range[1] - range[0]) > this.view.plotWidth / 1.5;
    if (crowded) {
      this.columns(panel, worker, y, ops);
    } else {
      this.idle(panel, worker, y, ops);
      this.boxes(panel, range, y, ops);
    }
    this.updates(panel, worker, y, ops);
    if (allReduce > 0) this.allReduces(panel, worker, y + ops, allReduce);
    if (memory > 0) this.memoryLane(panel, worker, y + ops + allReduce, memory);
  }

  /** The spans of a worker that are at least partly in view: [first, last). */
  visible(spans, worker) {
    const from = spans.first[worker];
    const to = spans.first[worker + 1];
    const first = firstAbove(spans.end, this.view.startTime, from, to);
    return [first, firstAbove(spans.start, this.view.endTime, first, to)];
  }

  boxes(panel, [first, last], y, height) {
    const {context, view, theme} = this;
    const {replica, microBatch, start, end} = panel.ops;
    const size = Math.min(13, height * (panel.hasHalves ? 0.4 : 0.72));
    context.font = `${size}px system-ui, "DejaVu Sans", sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let op = first; op < last; ++op) {
      const left = view.x(start[op]);
      const width = Math.max(0.5, (end[op] - start[op]) * view.scale);
      const gap = width > 6 ? 1 : 0;
      const lane = panel.laneOf(op);
      const top = y + lane.from * height;
      const tall = lane.share * height;
      const dimmed = view.pinned !== null && view.pinned !== microBatch[op];
      context.globalAlpha = dimmed ? 0.2 : 1;
      context.fillStyle = panel.fillOf(op);
      context.fillRect(left, top, width - gap, tall);
      if (panel.replicas[replica[op]].hatched && width >= 3) {
        context.fillStyle = theme.replica;
        context.fillRect(left, top, width - gap, tall);
      }
      if (Math.min(size, tall) >= 7 && width >= size) {
        this.boxLabel(panel, op, left + (width - gap) / 2, top + tall / 2, width);
      }
    }
    context.globalAlpha = 1;
    this.pairs(panel, [first, last], y, height);
  }

  /** Outlines pairs that are wide enough to be seen. */
  pairs(panel, [first, last], y, height) {
    const {context, view} = this;
    const {paired, start, end} = panel.ops;
    if (!paired) return;
    context.strokeStyle = "#000000";
    context.lineWidth = 1;
    context.setLineDash([4, 2]);
    for (let op = first; op < last; ++op) {
      if (!paired[op]) continue;
      const left = view.x(start[op]);
      const width = view.x(Math.max(end[op], end[op + 1])) - left;
      if (width > 6) context.strokeRect(left + 0.5, y + 0.5, width - 2, height - 1);
    }
    context.setLineDash([]);
  }

  /** Writes stage, letter and micro-batch if they fit, else only the micro-batch, as papers do. */
  boxLabel(panel, op, x, y, width) {
    for (const text of [panel.label(op), String(panel.ops.microBatch[op])]) {
      if (this.context.measureText(text).width + 5 > width) continue;
      this.context.fillStyle = "#000000";
      this.context.fillText(text, x, y + 0.5);
      return;
    }
  }

  idle(panel, worker, y, height) {
    const {start, end, cause} = panel.bubbles;
    const [first, last] = this.visible(panel.bubbles, worker);
    for (let b = first; b < last; ++b) {
      const width = (end[b] - start[b]) * this.view.scale;
      const style = this.theme.causes[cause[b]];
      this.context.fillStyle = width >= 4 ? style.hatched : style.solid;
      this.context.fillRect(this.view.x(start[b]), y, Math.max(0.5, width), height);
    }
  }

  /**
   * Draws the shares of kinds of ops from below, and of causes of idle time from above, one column per pixel. Writes a
   * row's pixels at once, because rectangles would be a hundred thousand per frame.
   */
  columns(panel, worker, y, height) {
    const {view, theme, context} = this;
    const width = Math.ceil(view.plotWidth);
    const tall = Math.max(1, Math.round(height));
    const kinds = kLetters.map(() => new Float32Array(width));
    const causes = theme.causes.map(() => new Float32Array(width));
    this.addShares(panel.ops, worker, (op) => kinds[panel.ops.kind[op]], (op) => panel.laneOf(op).share);
    this.addShares(panel.bubbles, worker, (bubble) => causes[panel.bubbles.cause[bubble]], () => 1);
    const image = new ImageData(width, tall);
    const pixels = new Uint32Array(image.data.buffer);
    const stack = (shares, colors, fromBelow) => {
      const numbers = colors.map(pixelOf);
      for (let column = 0; column < width; ++column) {
        let share = 0;
        let done = 0;
        shares.forEach((each, i) => {
          share += each[column];
          for (const end = Math.min(tall, Math.round(share * tall)); done < end; ++done) {
            pixels[(fromBelow ? tall - 1 - done : done) * width + column] = numbers[i];
          }
        });
      }
    };
    stack(causes, theme.causes.map((cause) => cause.solid), false);
    stack(kinds, panel.fills.map((shades) => shades[0]), true);
    const canvas = theme.strip;
    if (canvas.width !== width || canvas.height !== tall) [canvas.width, canvas.height] = [width, tall];
    canvas.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(canvas, view.left, y, width, height);
  }

  addShares(spans, worker, sharesOf, weightOf) {
    const {view} = this;
    const [first, last] = this.visible(spans, worker);
    for (let i = first; i < last; ++i) {
      const from = Math.max(0, view.x(spans.start[i]) - view.left);
      const to = Math.min(view.plotWidth, view.x(spans.end[i]) - view.left);
      const shares = sharesOf(i);
      const weight = weightOf(i);
      for (let column = Math.floor(from); column < to; ++column) {
        shares[column] += weight * (Math.min(to, column + 1) - Math.max(from, column));
      }
    }
  }

  updates(panel, worker, y, height) {
    const {start, end} = panel.updates;
    const [first, last] = this.visible(panel.updates, worker);
    this.context.fillStyle = page.updateColor;
    for (let i = first; i < last; ++i) {
      this.context.fillRect(this.view.x(start[i]), y, (end[i] - start[i]) * this.view.scale, height);
    }
  }

  allReduces(panel, worker, y, height) {
    const {stage, start, end} = panel.allReduces;
    const [first, last] = this.visible(panel.allReduces, worker);
    for (let i = first; i < last; ++i) {
      const left = this.view.x(start[i]);
      const width = Math.max(1, (end[i] - start[i]) * this.view.scale);
      this.context.fillStyle = page.allReduceColor;
      this.context.fillRect(left, y + 1, width, height - 1);
      if (height >= 8 && width > 40) {
        this.context.fillStyle = "#000000";
        this.context.font = `${Math.min(10, height - 1)}px system-ui, sans-serif`;
        this.context.textAlign = "left";
        this.context.fillText(`sum ${stage[i]}`, left + 3, y + height / 2 + 0.5);
      }
    }
  }

  /** Draws memory as an area, with a common scale for panels of the same unit. A pixel shows its maximum. */
  memoryLane(panel, worker, y, height) {
    const {context, view} = this;
    const {first, time, amount} = panel.memory;
    const last = first[worker + 1];
    const full = view.mostMemory(panel);
    const base = y + height;
    let at = Math.max(first[worker], firstAbove(time, view.startTime, first[worker], last) - 1);
    context.fillStyle = this.theme.memory;
    context.beginPath();
    for (; at < last && time[at] < view.endTime;) {
      const left = view.x(time[at]);
      let most = amount[at];
      let next = at + 1;
      for (; next < last && view.x(time[next]) < left + 1; ++next) most = Math.max(most, amount[next]);
      const right = view.x(next < last ? time[next] : panel.makespan);
      const tall = (most / full) * (height - 1);
      context.rect(left, base - tall, Math.max(right - left, 1), tall);
      at = next;
    }
    context.fill();
  }
}

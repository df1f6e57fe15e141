"use strict";
// Decodes the schedules of a page. Ops are numbered consecutively over all workers of a panel. Their fields are typed
// arrays, so that a hundred thousand ops decode in milliseconds.

const kNone = 0xffffffff;
const kLetters = ["F", "B", "I", "W"];
const kKinds = ["forward", "backward", "input gradient", "weight gradient"];
const kColumnTypes = {u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array};

function decodeColumn({type, data}) {
  const text = atob(data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return new kColumnTypes[type](bytes.buffer);
}

function decodeTable(raw) {
  const table = {};
  for (const [name, column] of Object.entries(raw)) table[name] = decodeColumn(column);
  return table;
}

/** The first index in [from, to) whose value is above `limit`. */
function firstAbove(values, limit, from, to) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] > limit) to = middle;
    else from = middle + 1;
  }
  return from;
}

/** Formats a number with 6 digits, the precision of 32-bit floats. */
function number(value) {
  return String(Number(value.toPrecision(6)));
}

/** Formats a difference of two times with the digits that remain significant. */
function duration(start, end) {
  return String(Number((end - start).toPrecision(4)));
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; Math.abs(value) >= 1024 && unit + 1 < units.length; ++unit) value /= 1024;
  return `${Number(value.toPrecision(4))} ${units[unit]}`;
}

class Panel {
  constructor(raw) {
    // title, workers, lost, replicas, fills, makespan, opsEnd, lowerBound, bubbleRatio, totals, inBytes
    Object.assign(this, raw);
    this.ops = decodeTable(raw.ops);
    this.bubbles = decodeTable(raw.bubbles);
    this.messages = decodeTable(raw.messages);
    this.allReduces = decodeTable(raw.allReduces);
    this.updates = decodeTable(raw.updates);
    this.memory = decodeTable(raw.memory);
    this.criticalPath = decodeColumn(raw.criticalPath);
    this.isCritical = new Uint8Array(this.ops.kind.length);
    for (const op of this.criticalPath) this.isCritical[op] = 1;
    this.indexMessages();
    this.mostMemory = this.memory.amount.reduce((most, amount) => Math.max(most, amount), 0);
    this.hasAllReduces = this.allReduces.stage.length > 0;
    this.hasMemory = this.mostMemory > 0;
    this.hasHalves = (this.ops.paired || []).some((paired, op) => paired && this.laneOf(op).share < 1);
  }

  indexMessages() {
    this.messageTo = new Uint32Array(this.ops.kind.length).fill(kNone);
    this.messageFrom = new Uint32Array(this.ops.kind.length).fill(kNone);
    for (let m = 0; m < this.messages.from.length; ++m) {
      this.messageTo[this.messages.to[m]] = m;
      this.messageFrom[this.messages.from[m]] = m;
    }
  }

  workerOf(op) {
    return firstAbove(this.ops.first, op, 0, this.ops.first.length) - 1;
  }

  /** Returns the other op of the op's pair, or kNone. */
  pairOf(op) {
    const {paired} = this.ops;
    if (!paired) return kNone;
    if (paired[op]) return op + 1;
    return op > 0 && paired[op - 1] ? op - 1 : kNone;
  }

  /** Returns the part of an op's row, from the top: half for each op of a pair that runs together. */
  laneOf(op) {
    const other = this.pairOf(op);
    const first = Math.min(op, other);
    if (other === kNone || this.ops.start[first + 1] >= this.ops.end[first]) return {from: 0, share: 1};
    return {from: op === first ? 0 : 0.5, share: 0.5};
  }

  label(op) {
    const slice = this.ops.slice ? `.${this.ops.slice[op]}` : "";
    return `${this.ops.stage[op]}${kLetters[this.ops.kind[op]]}${this.ops.microBatch[op]}${slice}`;
  }

  /** Returns the color of an op's box: of its kind, replica and slice. */
  fillOf(op) {
    const {kind, replica, slice} = this.ops;
    const fills = this.fills[kind[op]];
    if (!slice) return fills[replica[op]];
    const shades = fills.length / this.replicas.length;
    return fills[replica[op] * shades + Math.floor(slice[op] * shades / this.slices)];
  }

  /** The entry of a worker's spans (ops, bubbles, all-reduces) that covers `time`, or kNone. */
  spanAt(spans, worker, time) {
    const at = firstAbove(spans.end, time, spans.first[worker], spans.first[worker + 1]);
    return at < spans.first[worker + 1] && spans.start[at] <= time ? at : kNone;
  }

  memoryAt(worker, time) {
    const {first, time: times, amount} = this.memory;
    const at = firstAbove(times, time, first[worker], first[worker + 1]);
    return at > first[worker] ? amount[at - 1] : 0;
  }

  amount(value) {
    return this.inBytes ? bytes(value) : `${number(value)} stage unit${value === 1 ? "" : "s"}`;
  }

  /** `2F5 on worker 2`. */
  place(op) {
    return `${this.label(op)} on worker ${this.workerOf(op)}`;
  }

  describeOp(op) {
    const {ops} = this;
    const replica = this.replicas[ops.replica[op]];
    const lines = [
      `stage ${ops.stage[op]}, micro-batch ${ops.microBatch[op]}` + (ops.slice ? `, slice ${ops.slice[op]}` : "") +
          (this.replicas.length > 1 ? `, replica ${ops.replica[op]}${replica.name ? ` (${replica.name})` : ""}` : ""),
      `worker ${this.workerOf(op)}, ${number(ops.start[op])} to ${number(ops.end[op])} ` +
          `(${duration(ops.start[op], ops.end[op])})`,
    ];
    if (this.pairOf(op) !== kNone) lines.push(`a pair with ${this.label(this.pairOf(op))}`);
    if (ops.version) lines.push(`weights after ${ops.version[op]} updates`);
    lines.push(...this.describeWait(op));
    if (this.isCritical[op]) lines.push("on the critical path");
    return {heading: `${this.label(op)} ${kKinds[ops.kind[op]]}`, lines};
  }

  /** Returns why the op did not start earlier: idle time right before it by cause, and the message with its input. */
  describeWait(op) {
    const {ops, bubbles, messages} = this;
    const worker = this.workerOf(op);
    const before = this.laneOf(op).from > 0 ? op - 2 : op - 1;  // a pair waits as one
    const free = before >= ops.first[worker] ? ops.end[before] : 0;
    const lines = [];
    const last = firstAbove(bubbles.start, free - this.makespan * 1e-6, bubbles.first[worker],
                            bubbles.first[worker + 1]);
    for (let b = last; b < bubbles.first[worker + 1] && bubbles.start[b] < ops.start[op]; ++b) {
      lines.push(this.describeBubble(b));
    }
    if (lines.length === 0) {
      const waited = ops.start[op] - free > this.makespan * 1e-6;
      if (waited) lines.push(`waited ${duration(free, ops.start[op])}`);
      else lines.push(before >= ops.first[worker] ? `right after ${this.label(before)}` : "first op of its worker");
    }
    const message = this.messageTo[op];
    if (message !== kNone) {
      lines.push(`input from ${this.place(messages.from[message])}: sent ${number(messages.sent[message])}, ` +
                 `arrived ${number(messages.arrived[message])}`);
    }
    return lines;
  }

  describeBubble(bubble) {
    const {start, end, cause, waitsFor} = this.bubbles;
    const awaited = waitsFor[bubble] === kNone ? "" : ` for ${this.place(waitsFor[bubble])}`;
    return `waited ${duration(start[bubble], end[bubble])}${awaited}: ${page.causes[cause[bubble]].name}`;
  }
}

"use strict";
// Marks of the editor above its schedule: ops that never run, waits of a deadlock, and the selected and dragged op.

/** Fades the ops that never run and outlines the ops of the first error. Arrows show the waits of a cycle, by pairs. */
function drawStuck({picture: {base: context, theme}, view}, panel, places) {
  context.fillStyle = theme.paper;
  context.globalAlpha = 0.55;
  for (let worker = 0; worker < panel.workers; ++worker) {
    for (let op = panel.ops.first[worker] + panel.visited[worker]; op < panel.ops.first[worker + 1]; ++op) {
      const box = boxOf(view, panel, op);
      context.fillRect(box.left, box.top, box.right - box.left, box.height);
    }
  }
  context.globalAlpha = 1;
  const {first} = panel.ops;
  const known = places.filter(({worker, position}) => (
      worker < panel.workers && position < first[worker + 1] - first[worker]));
  const boxes = known.map(({worker, position}) => boxOf(view, panel, first[worker] + position));
  context.strokeStyle = theme.dark ? "#ff9a5c" : "#b03a00";
  context.lineWidth = 3;
  for (const box of boxes) outlineBox(context, box);
  context.lineWidth = 2;
  for (let i = 0; i + 1 < boxes.length; i += 2) {
    const [from, to] = [boxes[i], boxes[i + 1]];
    const low = from.top === to.top ? from.height * 0.3 : 0;  // below the labels of one row
    arrow(context, (from.left + from.right) / 2, from.middle + low, (to.left + to.right) / 2, to.middle + low);
  }
}

function outlineBox(context, box) {
  context.strokeRect(box.left + 1, box.top + 1, box.right - box.left - 3, box.height - 2);
}

function drawPicked({picture: {base: context, theme}, view}, panel, op) {
  context.strokeStyle = theme.mark;
  context.lineWidth = 3;
  context.setLineDash([5, 2]);
  outlineBox(context, boxOf(view, panel, op));
  context.setLineDash([]);
}

/** Draws a shadow of the dragged op at the pointer. */
function drawDragged({picture: {base: context, theme}, view}, panel, op, x) {
  const box = boxOf(view, panel, op);
  context.fillStyle = theme.mark;
  context.globalAlpha = 0.35;
  context.fillRect(x - (box.right - box.left) / 2, box.top, box.right - box.left, box.height);
  context.globalAlpha = 1;
}

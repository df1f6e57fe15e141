"use strict";
// Acts like a user of the page and checks what it shows. page_test.py evaluates it in the loaded page. The page shows
// chimera above 1f1b, both with D = N = 4, F = 1 and B = 2.

const failures = [];
let checks = 0;

function expect(what, actual, expected) {
  ++checks;
  const [is, should] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (is !== should) failures.push(`${what}: ${is}, expected ${should}`);
}

/** Sends a pointer event at a point of the plot. */
function pointer(type, x, y) {
  const bounds = plot.getBoundingClientRect();
  plot.dispatchEvent(new PointerEvent(type, {clientX: bounds.left + x, clientY: bounds.top + y, pointerId: 1}));
}

function press(key) {
  document.dispatchEvent(new KeyboardEvent("keydown", {key, cancelable: true}));
}

function wheel(deltaY, x, y, keys = {}) {
  const bounds = plot.getBoundingClientRect();
  plot.dispatchEvent(new WheelEvent(
      "wheel", {clientX: bounds.left + x, clientY: bounds.top + y, deltaY, cancelable: true, ...keys}));
}

/** Returns the middle of the box of the op with this label. */
function middleOf(panel, label) {
  const op = [...panel.ops.kind.keys()].find((each) => panel.label(each) === label);
  const box = boxOf(view, panel, op);
  return [(box.left + box.right) / 2, box.middle];
}

const tipLines = () => tip.hidden ? null : [...tip.children].map((line) => line.textContent);

/** Waits until the plot has drawn the frame that it has scheduled, if any. */
async function drawn() {
  while (shown.scheduled) await new Promise((done) => requestAnimationFrame(done));
}

/** Returns the colors at points of the picture, as #rrggbb. */
function colorsAt(...points) {
  const ratio = window.devicePixelRatio || 1;
  const {width, height} = picture.base.canvas;
  const {data} = picture.base.getImageData(0, 0, width, height);  // once: Chromium complains about more reads
  return points.map(([x, y]) => {
    const start = 4 * (Math.round(y * ratio) * width + Math.round(x * ratio));
    return "#" + [...data.slice(start, start + 3)].map((part) => part.toString(16).padStart(2, "0")).join("");
  });
}

function testTable() {
  const rows = [...document.querySelectorAll("#totals tbody tr")].map(
      (row) => [...row.children].map((cell) => cell.textContent));
  expect("rows of the table", rows.map((row) => row[0]), panels.map((panel) => panel.title));
  const headings = [...document.querySelectorAll("#totals th")].map((cell) => cell.textContent);
  const makespan = headings.indexOf("makespan");
  expect("makespan of chimera", rows[0][makespan], "16");
  expect("makespan of 1f1b, and the difference", rows[1][makespan], "21 +31.3 %");
  expect("bubble ratio of chimera", rows[0][headings.indexOf("bubble ratio")], "0.25");
}

function testLegend() {
  const entries = document.getElementById("legend").textContent;
  for (const part of ["F forward", "B backward", "replica 0 (down)", "replica 1 (up)", "idle: "]) {
    expect(`the legend has "${part}"`, entries.includes(part), true);
  }
  expect("the legend has kinds of ops that are not on the page", entries.includes("input gradient"), false);
}

function testPicture() {
  const op = panels[1].ops.first[1];  // 1F0 of 1f1b, which has one replica and no hatch
  const box = boxOf(view, panels[1], op);
  const end = [view.x(panels[0].makespan) + 4, boxOf(view, panels[0], 0).middle];
  const [corner, paper] = colorsAt([box.left + 4, box.top + 4], end);
  expect("color of an op's corner", corner, panels[1].fills[0][0]);
  expect("color after the end", paper === panels[1].fills[0][0], false);
}

function testHover() {
  pointer("pointermove", ...middleOf(panels[0], "1F0"));
  expect("an op's explanation", tipLines()?.slice(0, 3),
         ["1F0 forward", "stage 1, micro-batch 0, replica 0 (down)", "worker 1, 1 to 2 (1)"]);
  expect("what an op waited for", tipLines()?.some((line) => line.startsWith("input from 0F0 on worker 0")), true);
  const [x, y] = [view.x(0.5), middleOf(panels[0], "1F0")[1]];  // worker 1 waits for 0F0
  pointer("pointermove", x, y);
  expect("a bubble's explanation", tipLines()?.slice(0, 2), ["bubble", "worker 1, 0 to 1"]);
  expect("the cause of a bubble", tipLines()?.[2].startsWith("waited 1 for 0F0 on worker 0: "), true);
  pointer("pointerleave", x, y);
  expect("no explanation outside the plot", tipLines(), null);
}

function testPin() {
  const [x, y] = middleOf(panels[0], "2F1");
  pointer("pointerdown", x, y);
  pointer("pointerup", x, y);
  expect("a click follows a micro-batch", view.pinned, 1);
  press("Escape");
  expect("Escape stops following it", view.pinned, null);
}

function testZoom() {
  press("f");
  expect("after f everything is in view", [view.startTime, view.fitted], [0, true]);
  const x = Math.round(middleOf(panels[0], "2F1")[0]);  // wheel events have whole pixels
  const [time, scale] = [view.timeAt(x), view.scale];
  wheel(-300, x, 100);
  expect("the wheel zooms", view.scale > 1.5 * scale, true);
  expect("the time under the pointer does not move", Math.abs(view.timeAt(x) - time) < 1e-6, true);
  const [start, rows] = [view.startTime, view.rowHeight];
  pointer("pointerdown", 400, 100);
  pointer("pointermove", 350, 100);
  pointer("pointerup", 350, 100);
  expect("a drag pans", Math.abs(view.startTime - start - 50 / view.scale) < 1e-6, true);
  expect("a drag follows no micro-batch", view.pinned, null);
  wheel(-300, 400, 100, {ctrlKey: true});
  expect("the wheel with Ctrl makes rows higher", view.rowHeight > rows, true);
  document.getElementById("fit").click();
  expect("the button resets the view", [view.startTime, view.scale, view.rowHeight], [0, scale, rows]);
}

function testKeys() {
  const box = (id) => document.getElementById(id).checked;
  const shown = () => [picture.show.critical, picture.show.arrows, view.memory];
  const boxes = () => [box("critical"), box("arrows"), box("memory")];
  const before = shown();
  expect("the boxes show the state of the picture", boxes(), before);
  for (const key of ["c", "a", "m"]) press(key);
  expect("keys switch parts of the picture", shown(), before.map((each) => !each));
  expect("keys switch the boxes", boxes(), shown());
  for (const key of ["c", "a", "m"]) press(key);
  const height = view.rowHeight;
  press("]");
  expect("] makes rows higher", view.rowHeight > height, true);
  press("f");
}

async function test() {
  plot.setPointerCapture = () => {};  // refuses synthetic pointers
  await drawn();
  for (const part of [testTable, testLegend, testPicture, testHover, testPin, testZoom, testKeys]) {
    part();
    await drawn();
  }
  return failures.length === 0 ? `${checks} checks passed` : failures.join("\n");
}

test();

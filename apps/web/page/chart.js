"use strict";
// Line charts over a parameter, with their data, and stacked bars.

const kLineStyles = [  // colors of Okabe and Ito; dashes and marks also distinguish the lines
  {light: "#0072b2", dark: "#56b4e9", dash: "", mark: "circle"},
  {light: "#b8500a", dark: "#e69f00", dash: "7 4", mark: "square"},
  {light: "#007a5a", dark: "#1fb38a", dash: "2 3", mark: "triangle"},
  {light: "#a0508a", dark: "#cc79a7", dash: "9 3 2 3", mark: "diamond"},
];

function svgPart(name, attributes, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

/** Returns about `wanted` round numbers from at most `least` to at least `most`. */
function roundSteps(least, most, wanted) {
  const span = most - least || Math.abs(most) || 1;
  const power = 10 ** Math.floor(Math.log10(span / wanted));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= span / wanted);
  const steps = [];
  for (let i = Math.floor(least / step + 1e-9); (i - 1) * step < most - step * 1e-9; ++i) {
    steps.push(Number((i * step).toPrecision(12)));
  }
  return steps;
}

function markAt(kind, x, y, title) {
  const shapes = {
    circle: `M${x - 3.5} ${y}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0`,
    square: `M${x - 3} ${y - 3}h6v6h-6z`,
    triangle: `M${x} ${y - 4}l4 7h-8z`,
    diamond: `M${x} ${y - 4.5}l4 4.5l-4 4.5l-4 -4.5z`,
  };
  const mark = svgPart("path", {d: shapes[kind], class: "mark"});
  mark.append(svgPart("title", {}, title));
  return mark;
}

/** Returns a chart with one line per series {name, points: [[x, y], ...]}. */
function lineChart({title, xLabel, yLabel, series, fromZero = true}) {
  const [width, height, left, right, top, bottom] = [680, 300, 64, 16, 14, 44];
  const points = series.flatMap((each) => each.points);
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const xTicks = roundSteps(Math.min(...xs), Math.max(...xs), 8).filter((x) => x <= Math.max(...xs));
  const yTicks = roundSteps(fromZero ? 0 : Math.min(...ys), Math.max(...ys), 5);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  const [y0, y1] = [yTicks[0], yTicks[yTicks.length - 1]];
  const px = (x) => left + (x1 > x0 ? (x - x0) / (x1 - x0) : 0.5) * (width - left - right);
  const py = (y) => height - bottom - (y1 > y0 ? (y - y0) / (y1 - y0) : 0.5) * (height - top - bottom);
  const svg = svgPart("svg", {viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": title});
  for (const y of yTicks) {
    svg.append(svgPart("line", {x1: left, x2: width - right, y1: py(y), y2: py(y), class: "rule"}),
               svgPart("text", {x: left - 8, y: py(y) + 4, "text-anchor": "end"}, number(y)));
  }
  for (const x of xTicks.filter((each) => each >= x0)) {
    svg.append(svgPart("text", {x: px(x), y: height - bottom + 18, "text-anchor": "middle"}, number(x)));
  }
  svg.append(svgPart("text", {x: (left + width) / 2, y: height - 6, "text-anchor": "middle"}, xLabel),
             svgPart("text", {x: 14, y: (height - bottom) / 2, "text-anchor": "middle",
                              transform: `rotate(-90 14 ${(height - bottom) / 2})`}, yLabel));
  series.forEach((each, s) => {
    const style = kLineStyles[s % kLineStyles.length];
    const part = svgPart("g", {class: "series", style: `--light:${style.light};--dark:${style.dark}`});
    part.append(svgPart("polyline", {points: each.points.map(([x, y]) => `${px(x)},${py(y)}`).join(" "),
                                     "stroke-dasharray": style.dash}));
    for (const [x, y] of each.points) {
      part.append(markAt(style.mark, px(x), py(y), `${each.name}: ${number(y)} at ${number(x)}`));
    }
    svg.append(part);
  });
  return svg;
}

function lineLegend(series) {
  return make("div", {class: "legend"}, series.map((each, s) => {
    const style = kLineStyles[s % kLineStyles.length];
    const svg = svgPart("svg", {viewBox: "0 0 34 14", class: "series sample", "aria-hidden": "true",
                                style: `--light:${style.light};--dark:${style.dark}`});
    svg.append(svgPart("polyline", {points: "1,7 33,7", "stroke-dasharray": style.dash}),
               markAt(style.mark, 17, 7, ""));
    return make("span", {}, svg, each.name);
  }));
}

/** Returns a chart with its legend and its data, as a table and as CSV. */
function chartWithData(chart) {
  const xs = [...new Set(chart.series.flatMap((each) => each.points.map(([x]) => x)))].sort((a, b) => a - b);
  const valueAt = (each, x) => each.points.find((point) => point[0] === x)?.[1] ?? "–";
  const rows = xs.map((x) => [x, ...chart.series.map((each) => valueAt(each, x))]);
  const headings = [chart.xLabel, ...chart.series.map((each) => each.name)];
  const quoted = (value) => /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value;
  const csv = () => [headings, ...rows].map((cells) => cells.map(quoted).join(",")).join("\n") + "\n";
  return make("figure", {}, make("figcaption", {}, chart.title), lineChart(chart), lineLegend(chart.series),
              make("details", {}, make("summary", {}, "Data"), table(chart.title, headings, rows)),
              row(copyButton("Copy data", csv), button("Save CSV", () => download("sweep.csv", csv(), "text/csv"))));
}

/** Returns stacked bars of parts {name, amount, color}. The text beside a bar is its sum, or its `amount` if given.
 * `limit` draws a line at that value. */
function stackedBars({title, bars, text, limit = 0}) {
  const most = Math.max(limit, ...bars.map((bar) => bar.parts.reduce((sum, part) => sum + part.amount, 0)), 1e-300);
  const parts = new Map(bars.flatMap((bar) => bar.parts.filter((part) => part.amount > 0))
      .map((part) => [part.name, part.color]));
  const bar = ({label, parts: own, note, amount}) => {
    const sum = own.reduce((total, part) => total + part.amount, 0);
    const boxes = own.filter((part) => part.amount > 0).map((part) => make("span", {
      style: `width:${100 * part.amount / most}%;background:${part.color}`,
      title: `${part.name}: ${text(part.amount)}`}));
    const line = limit > 0 ? make("i", {style: `left:${100 * limit / most}%`, "aria-hidden": "true"}) : null;
    const said = own.map((part) => `${part.name} ${text(part.amount)}`).join(", ");
    return make("li", {}, make("span", {class: "label"}, label),
                make("span", {class: "bar", role: "img", "aria-label": `${label}: ${said}`}, boxes, line),
                make("span", {class: "amount"}, amount ?? `${text(sum)}${note ? `, ${note}` : ""}`));
  };
  const swatch = (color) => make("b", {class: "swatch", style: `background:${color}`});
  const legend = make("div", {class: "legend"},
                      [...parts].map(([name, color]) => make("span", {}, swatch(color), name)));
  return make("figure", {}, make("figcaption", {}, title), make("ul", {class: "bars"}, bars.map(bar)),
              parts.size < 2 ? null : legend);
}

"use strict";
// Form controls with their labels, and other elements.

/** Makes an element with attributes and children. onX adds a listener; false and null omit an attribute. */
function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

let lastId = 0;
function newId() {
  return `e${++lastId}`;
}

function button(text, onclick, attributes = {}) {
  return make("button", {type: "button", onclick, ...attributes}, text);
}

/** Puts a label above an input. */
function labeled(text, input, title = null) {
  input.id ||= newId();
  return make("div", {class: "field", title}, make("label", {for: input.id}, text), input);
}

function select(text, names, value, take, title = null) {
  const input = make("select", {onchange: () => take(input.value)},
                     names.map((name) => make("option", {value: name, selected: name === value}, name)));
  return labeled(text, input, title);
}

function checkbox(text, checked, take, title = null) {
  const input = make("input", {type: "checkbox", onchange: () => take(input.checked)});
  input.checked = checked;
  return make("label", {class: "check", title}, input, ` ${text}`);
}

/** Makes an input for a number of at least `least`. Marks invalid input and ignores it. */
function numberInput(value, {least = 0, most = 1e9, whole = false}, take) {
  const input = make("input", {type: "number", min: least, max: most, step: whole ? 1 : "any", value,
                               inputmode: whole ? "numeric" : "decimal"});
  input.addEventListener("input", () => {
    const given = input.valueAsNumber;
    const right = Number.isFinite(given) && given >= least && given <= most && (!whole || Number.isInteger(given));
    input.setAttribute("aria-invalid", String(!right));
    if (right) take(given);
  });
  return input;
}

function numberField(text, value, limits, take, title = null) {
  return labeled(text, numberInput(value, limits, take), title);
}

/** Makes a slider with a number input for the same value; the number may exceed the slider's range. */
function slider(text, value, {from = 0, to, step = 0.1, whole = false, least = from}, take, title = null) {
  const range = make("input", {type: "range", min: from, max: to, step, value, "aria-label": text});
  const exact = numberInput(value, {least, whole}, (given) => {
    range.value = given;
    take(given);
  });
  exact.id = newId();
  range.addEventListener("input", () => {
    exact.value = range.value;
    exact.setAttribute("aria-invalid", "false");
    take(range.valueAsNumber);
  });
  return make("div", {class: "field slider", title}, make("label", {for: exact.id}, text), range, exact);
}

function textField(text, value, placeholder, take, title = null) {
  const input = make("input", {type: "text", value, placeholder, spellcheck: "false", autocomplete: "off"});
  input.addEventListener("input", () => take(input.value.trim()));
  return labeled(text, input, title);
}

function group(title, ...children) {
  return make("fieldset", {}, make("legend", {}, title), ...children);
}

function row(...children) {
  return make("div", {class: "row"}, ...children);
}

/** Places the controls beside the content; on a narrow screen, in a collapsible box above it. */
function layOut(room, controls, content) {
  const narrow = matchMedia("(max-width: 900px)");
  const side = make("details", {class: "side"}, make("summary", {}, "Settings"), ...controls);
  const fold = () => side.open = !narrow.matches;
  narrow.addEventListener("change", fold);
  fold();
  room.append(side, make("div", {class: "content"}, ...content));
}

function plotParts(label) {
  return make("div", {class: "plot", tabindex: "0", role: "application", "aria-label": label,
                      "aria-roledescription": "picture of schedules"},
              make("canvas", {class: "picture", "aria-hidden": "true"}),
              make("canvas", {class: "overlay", "aria-hidden": "true"}),
              make("div", {class: "tip", role: "status", hidden: true}));
}

function download(name, content, type = "text/plain") {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], {type}));
  make("a", {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Copies a text to the clipboard; uses a selection if the browser denies access to the clipboard. */
async function copyText(text, said) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", {class: "hidden"});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const before = said.textContent;
  said.textContent = "copied";
  setTimeout(() => said.textContent = before, 1200);
}

function copyButton(text, content) {
  const made = button(text, () => copyText(content(), made));
  return made;
}

/** Makes a table with a caption; numbers are aligned right. */
function table(caption, headings, rows) {
  const cell = (value) => make("td", {class: typeof value === "number" ? "number" : null},
                               value instanceof Node ? value : typeof value === "number" ? number(value) : value);
  return make("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
              make("table", {class: "data"}, make("caption", {}, caption),
                   make("thead", {}, make("tr", {}, headings.map((each) => make("th", {scope: "col"}, each)))),
                   make("tbody", {}, rows.map((cells) => make("tr", {}, cells.map(cell))))));
}

/** Shows a message; screen readers announce an error at once. */
function say(place, text, isError = false) {
  place.textContent = text;
  place.setAttribute("role", isError ? "alert" : "status");
  place.classList.toggle("error", isError);
  place.hidden = text === "";
}

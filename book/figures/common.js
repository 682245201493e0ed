// What all figures share. Each output cell has its own copy, inside a function of its own, so that nothing clashes.
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

/** An HTML element with properties or attributes, and children. */
function make(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** A number with so many digits, and with a true minus sign; never "-0.00". */
const show = (value, digits = 2) => {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "\u2212");
};

/** "1", "1 and 2", "1, 2 and 3". */
const list = (items) => items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;

/** A range with its name and its value; `changed` is called when the reader moves it. */
function slider(name, [min, max, step], value, changed, written = (v) => show(v)) {
  const output = make("output", { "aria-live": "off" });
  const input = make("input", { type: "range", min, max, step, "aria-label": name });
  const set = (v) => {
    input.value = v;
    output.textContent = written(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.oninput = () => { set(input.value); changed(Number(input.value)); };
  set(value);
  const label = make("label", {}, make("span", {}, name, output), input);
  return { label, input, set, get value() { return Number(input.value); } };
}

/** One of several, as radio buttons. `options` are pairs of value and text. */
function choice(name, options, value, changed) {
  const group = "fedlib" + Math.random().toString(36).slice(2);
  const inputs = options.map(([v]) => make("input", { type: "radio", name: group, value: v, checked: v === value, onchange: () => changed(v) }));
  const labels = options.map(([, text], i) => make("label", {}, inputs[i], text));
  const label = make("fieldset", {}, make("legend", {}, name), ...labels);
  const set = (v) => options.forEach(([o], i) => { inputs[i].checked = o === v; });
  return { label, set };
}

/** A drop-down list. */
function menu(name, options, value, changed) {
  const select = make("select", { "aria-label": name }, ...options.map(([v, text]) => make("option", { value: v, selected: v === value }, text)));
  select.onchange = () => changed(select.value);
  return { label: make("label", {}, make("span", {}, name), select), select };
}

/** Small whole numbers from base64. */
const unpack = (text) => Int8Array.from(atob(text), (c) => c.charCodeAt(0));

/** A matrix from -1 to 1 as squares of size 1: the fuller the further from 0, in two colours; the diagonal is grey. As `_squares` in Python. */
function squares(values, plus = "var(--plus)") {
  const levels = new Map();
  values.forEach((row, i) => row.forEach((value, j) => {
    const level = i === j ? "itself" : Math.round(10 * value);
    if (level) levels.set(level, (levels.get(level) ?? "") + `M${j} ${i}h.95v.95h-.95z`);
  }));
  return [...levels].map(([v, d]) => v === "itself" ? `<path fill="var(--line)" d="${d}"/>` : `<path fill="${v > 0 ? plus : "var(--minus)"}" fill-opacity="${Math.abs(v) / 10}" d="${d}"/>`).join("");
}

/** Call `draw` in the next frame, once, however often it is asked for. */
function oncePerFrame(draw) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  };
}

/** Bring to life each figure of this kind that still stands still. */
function start(kind, live) {
  for (const figure of document.querySelectorAll(`figure[data-fedlib="${kind}"]:not([data-live])`)) {
    figure.dataset.live = "";
    const data = figure.querySelector("script[type='application/json']");
    live(figure, data ? JSON.parse(data.textContent) : {});
  }
}

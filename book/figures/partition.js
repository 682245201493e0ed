// Partition: forty clients, what each holds of each class, and three measures of how much they differ.

const total = (row) => row.reduce((a, b) => a + b, 0);

/** The measures of the chapter: mean distance of a client's shares of the classes from everybody's, and others. */
function measures(counts) {
  const size = counts.map(total), all = total(size), shares = counts[0].map((_, c) => total(counts.map((row) => row[c])) / all);
  const own = counts.map((row, k) => row.map((n) => n / size[k])), mean = (f) => total(own.map(f)) / own.length;
  return [
    mean((p) => total(p.map((v, c) => Math.abs(v - shares[c]))) / 2),
    mean((p) => Math.exp(-total(p.map((v) => v ? v * Math.log(v) : 0)))),
    Math.max(...size) / Math.min(...size),
  ];
}

/** A path for each class: its part of the bar of each client, one upon the other. */
function bars(counts, { left, bottom, height, wide }) {
  const most = Math.max(...counts.map(total)), below = counts.map(() => 0);
  return counts[0].map((_, c) => counts.map((row, k) => {
    const from = below[k], to = below[k] += row[c] * height / most;
    return row[c] ? `M${left + k * wide} ${(bottom - to).toFixed(1)}h${wide - 2}v${(to - from).toFixed(1)}h${2 - wide}z` : "";
  }).join(""));
}

function sentence(kind, value, found, control) {
  const [distance, classes, ratio] = found.map((v) => show(v)), skewed = found[0] - control[0];
  const start = `${kind.name}, ${kind.symbol} = ${value}: `;
  if (skewed > 0.03) return `${start}on average ${show(100 * found[0], 0)} of 100 examples of a client would need another label to look like those of all clients, and by chance it would be ${show(100 * control[0], 0)}. A client has ${classes} classes in effect, and the largest has ${ratio} times the examples of the smallest.`;
  return `${start}labels are hardly farther from those of all clients than by chance (${distance}; IID: ${show(control[0])}). The largest client has ${ratio} times the examples of the smallest.`;
}

function live(figure, data) {
  let kind = 0, at = data.kinds[0].first, draw = 0;
  const says = make("output", { className: "says", "aria-live": "polite" });
  const paths = figure.querySelectorAll("[data-class]"), cells = figure.querySelectorAll("[data-measure]");
  const update = oncePerFrame(() => {
    const one = data.kinds[kind], counts = one.counts[at][draw], found = measures(counts);
    bars(counts, data.plot).forEach((d, c) => paths[c].setAttribute("d", d));
    figure.querySelector("[data-most]").textContent = Math.max(...counts.map(total));
    found.forEach((v, i) => { cells[i].textContent = show(v); });
    says.textContent = sentence(one, one.values[at], found, data.control);
  });
  const which = choice("How clients differ", data.kinds.map((k, i) => [i, k.name]), kind, (v) => { kind = v; at = data.kinds[v].first; place(); update(); });
  const level = make("div"), again = slider("draw", [1, data.kinds[0].counts[0].length, 1], 1, (v) => { draw = v - 1; update(); }, (v) => show(v, 0));
  const place = () => { // each kind has values of its own
    const one = data.kinds[kind];
    level.replaceChildren(slider(one.label, [0, one.values.length - 1, 1], at, (v) => { at = v; update(); }, (v) => `${one.symbol} = ${one.values[v]}`).label);
  };
  level.style.flex = "4 1 14rem";
  figure.prepend(make("div", { className: "controls" }, which.label), make("div", { className: "controls" }, level, again.label), says);
  place();
  update();
}

start("partition", live);
